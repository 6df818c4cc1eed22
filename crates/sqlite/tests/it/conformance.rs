//! Every case of the suite.

use crate::kit::world;

longshore_testkit::conformance_suite!(world);
