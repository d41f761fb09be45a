//! The shape of the house: what ARCHITECTURE.md and CONTRIBUTING.md say of it is only worth
//! something as long as it is true.

mod advisories;
mod circles;
mod edges;
mod names;
mod places;
mod source;
mod words;
