//! The `longshore` binary. Everything is in the library, so that it compiles in parallel with its
//! dependencies.

fn main() -> std::process::ExitCode {
    longshore_cli::main()
}
