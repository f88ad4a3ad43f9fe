//! Queue policies against slow models that look at one job after the other, and by example.

mod examples;
mod model_places;
mod model_plan;
mod steps;
