//! The agent's configuration: files in HCL or JSON, checked against one table of keys.

pub mod keys;
pub mod settings;
pub mod tree;
