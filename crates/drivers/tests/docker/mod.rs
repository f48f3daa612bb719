//! Real containers under the docker driver.

mod engine;
mod images;
mod registry;
mod tasks;
