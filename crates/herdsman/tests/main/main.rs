//! The binary as people use it: real agents, real jobs, real signals.

mod agents;
mod crash;
mod dev;
mod support;
