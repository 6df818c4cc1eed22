//! The `longshore` binary. Everything is in the library, so that it compiles beside what it depends on.

fn main() -> std::process::ExitCode {
    longshore_cli::main()
}
