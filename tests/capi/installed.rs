//! The library for C, installed in a folder of this process, and programs compiled against it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ringfold_harness::{needed, program};

/// The folder of the C interface.
pub(crate) const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/capi");

/// The options of every compilation.
const OPTIONS: [&str; 6] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"];

/// An installed library. Its folder is below that of the tests' programs, and stays.
pub(crate) struct Installed(PathBuf);

impl Installed {
    /// Installs the library once. `None`, with a note, without a C compiler.
    pub(crate) fn get() -> Option<&'static Self> {
        static INSTALLED: OnceLock<Option<Installed>> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| {
            needed::are_there("cc", &["cc"]).then(|| {
                let built = program::libraries();
                let prefix = built.join("capi-prefix");
                let mut install = Command::new(format!("{SOURCES}/install"));
                let status = install.arg("--from").arg(built).arg(&prefix).status();
                assert!(status.unwrap().success());
                fs::create_dir_all(prefix.join("programs")).unwrap();
                Self(prefix)
            })
        });
        installed.as_ref()
    }

    pub(crate) fn prefix(&self) -> &Path {
        &self.0
    }

    /// Compiles a C test, and returns its path.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        self.compile_file(&format!("{SOURCES}/tests/{name}.c"))
    }

    /// Compiles a C test for MPICH, and returns its path.
    pub(crate) fn compile_for_mpich(&self, name: &str) -> PathBuf {
        let source = format!("{SOURCES}/tests/{name}.c");
        self.compile_by("mpicc.mpich", &source, "-mpich", &["-DWITH_MPI".to_owned()])
    }

    /// Compiles a program, and returns its path.
    pub(crate) fn compile_file(&self, source: &str) -> PathBuf {
        let library = self.0.join("lib");
        let search = format!("-Wl,-rpath,{}", library.display());
        let link = [format!("-L{}", library.display()), "-lringfold".to_owned(), search];
        self.compile_by("cc", source, "", &link)
    }

    /// Compiles a C test with the static library, and returns its path.
    pub(crate) fn compile_statically(&self, name: &str) -> PathBuf {
        let recipe = fs::read_to_string(self.0.join("lib/pkgconfig/ringfold.pc")).unwrap();
        let private = recipe.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
        let mut link = vec![self.0.join("lib/libringfold.a").display().to_string()];
        link.extend(private.split(' ').map(str::to_owned));
        self.compile_by("cc", &format!("{SOURCES}/tests/{name}.c"), "-static", &link)
    }

    fn compile_by(&self, compiler: &str, source: &str, ending: &str, link: &[String]) -> PathBuf {
        // Tests run at the same time, so each compilation has a name of its own.
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("main").replace("::", "-");
        let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
        let program = self.0.join(format!("programs/{test}-{name}{ending}"));
        let mut cc = Command::new(compiler);
        cc.args(OPTIONS).arg("-I").arg(self.0.join("include")).arg("-o").arg(&program);
        let output = cc.arg(source).args(link).output().unwrap();
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        program
    }
}
