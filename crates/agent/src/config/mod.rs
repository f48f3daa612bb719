//! The agent's configuration: files in HCL or JSON and flags, checked against one table of keys.

pub mod files;
pub mod flags;
pub mod hcl;
pub mod keys;
pub mod settings;
pub mod tree;
