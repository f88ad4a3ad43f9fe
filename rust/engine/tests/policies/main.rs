//! Queue policies against slow models that look at one job after the other, and by example.

mod examples;
#[path = "../machines/mod.rs"]
mod machines;
mod model_places;
mod model_plan;
mod steps;
