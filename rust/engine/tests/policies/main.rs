//! Queue policies compared with slow models that examine one job after the other, and by example.

mod examples;
#[path = "../machines/mod.rs"]
mod machines;
mod model_places;
mod model_plan;
mod steps;
