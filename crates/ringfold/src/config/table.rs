//! The table of settings.

/// Declares `Config` and all that has a part for each variable.
///
/// A row has the documentation, the variable, the field with its type and default, and the parser
/// of values. The values of a `common` variable must be the same on every rank, because schedules
/// depend on them; its function writes the value as text. A row after `rdma:` is a setting of the
/// RDMA transport, whose field replaces the default.
macro_rules! settings {
    (
        $(
            $(#[$doc:meta])*
            $variable:literal $field:ident: $type:ty = $default:expr, $parser:expr
            $(, common $text:expr)?;
        )*
        rdma:
        $(
            $(#[$rdma_doc:meta])*
            $rdma_variable:literal $rdma_field:ident: $rdma_type:ty = $setting:ident,
            $rdma_parser:expr;
        )*
    ) => {
        /// The settings of a communicator, with one field for each variable.
        ///
        /// Every rank of a job should have the same settings. Joining fails if ranks differ in
        /// `algorithms`, `wire`, `plan`, `chunk_bytes`, `channels`, `topology`, `topology_file`,
        /// `aggregators` or `in_network`, or if only some have a `trace`.
        #[derive(Clone)]
        #[non_exhaustive]
        pub struct Config {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$rdma_doc])* pub $rdma_field: $rdma_type,)*
            /// The whole environment. Joining reads the launchers' variables from it
            /// (`RINGFOLD_RANK`, `SLURM_PROCID`, `PMI_FD`, `OMPI_COMM_WORLD_RANK`, `RANK` and so
            /// on), and the place of the secret (`RINGFOLD_SECRET_FD`, `RINGFOLD_SECRET`,
            /// `RINGFOLD_SECRET_FILE`, `HOME`).
            pub environment: BTreeMap<String, String>,
        }

        impl Default for Config {
            fn default() -> Self {
                let rdma = RdmaSettings::default();
                Self {
                    $($field: $default,)*
                    $($rdma_field: rdma.$setting,)*
                    environment: BTreeMap::new(),
                }
            }
        }

        impl std::fmt::Debug for Config {
            /// Omits the environment, which may hold the secret.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct("Config")
                    $(.field(stringify!($field), &self.$field))*
                    $(.field(stringify!($rdma_field), &self.$rdma_field))*
                    .finish_non_exhaustive()
            }
        }

        impl Config {
            /// The settings of the RDMA transport.
            #[must_use]
            pub fn rdma(&self) -> RdmaSettings {
                let mut settings = RdmaSettings::default();
                $(settings.$setting.clone_from(&self.$rdma_field);)*
                settings
            }
        }

        /// Every variable, and the reader of its value.
        const VARIABLES: &[(&str, fn(&mut Config, &str) -> Result<(), ConfigError>)] = &[
            $(($variable, |config, value| {
                config.$field = $parser($variable, value)?.into();
                Ok(())
            }),)*
            $(($rdma_variable, |config, value| {
                config.$rdma_field = $rdma_parser($rdma_variable, value)?.into();
                Ok(())
            }),)*
        ];

        /// The variables that must be the same on every rank, and the text of their values.
        pub(crate) const COMMON: &[(&str, fn(&Config, Option<u64>) -> String)] =
            &[$($(($variable, $text),)?)*];
    };
}

pub(super) use settings;
