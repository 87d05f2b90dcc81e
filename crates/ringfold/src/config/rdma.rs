//! What `RINGFOLD_IB_*` say, and what the RDMA transport is told of it.

use ringfold_transport::rdma;
use ringfold_types::limits::{PATHS_MAX, RAILS_MAX};

use super::values::{bytes, count, number};
use super::{Config, ConfigError};

/// Queue pairs on each pair of rails.
#[expect(clippy::cast_possible_truncation, reason = "asserted to be at most 255")]
const QUEUE_PAIRS_MAX: u8 = (PATHS_MAX / RAILS_MAX) as u8;

impl Config {
    /// Takes what is set about RDMA.
    pub(super) fn set_rdma<'a>(
        &mut self,
        set: &impl Fn(&str) -> Option<&'a str>,
    ) -> Result<(), ConfigError> {
        if let Some(value) = set("RINGFOLD_IB_HCA") {
            let invalid = |why| ConfigError::Devices { value: value.to_owned(), why };
            self.ib_devices = value.parse().map_err(invalid)?;
        }
        if let Some(value) = set("RINGFOLD_IB_GID_INDEX") {
            self.ib_gid_index = Some(number("RINGFOLD_IB_GID_INDEX", value, 0..=u8::MAX)?);
        }
        if let Some(value) = set("RINGFOLD_IB_TC") {
            self.ib_traffic_class = number("RINGFOLD_IB_TC", value, 0..=u8::MAX)?;
        }
        if let Some(value) = set("RINGFOLD_IB_SL") {
            self.ib_service_level = number("RINGFOLD_IB_SL", value, 0..=15)?;
        }
        if let Some(value) = set("RINGFOLD_IB_PKEY") {
            self.ib_partition_key_index = number("RINGFOLD_IB_PKEY", value, 0..=u16::MAX)?;
        }
        if let Some(value) = set("RINGFOLD_IB_ADAPTIVE_ROUTING") {
            self.ib_adaptive_routing = Some(flag("RINGFOLD_IB_ADAPTIVE_ROUTING", value)?);
        }
        if let Some(value) = set("RINGFOLD_IB_TIMEOUT") {
            self.ib_timeout = number("RINGFOLD_IB_TIMEOUT", value, 1..=31)?;
        }
        if let Some(value) = set("RINGFOLD_IB_RETRY_CNT") {
            self.ib_retries = number("RINGFOLD_IB_RETRY_CNT", value, 0..=7)?;
        }
        if let Some(value) = set("RINGFOLD_IB_PCI_RELAXED_ORDERING") {
            self.ib_relaxed_ordering = flag("RINGFOLD_IB_PCI_RELAXED_ORDERING", value)?;
        }
        if let Some(value) = set("RINGFOLD_IB_QPS_PER_CONNECTION") {
            let most = 1..=QUEUE_PAIRS_MAX;
            self.ib_queue_pairs = number("RINGFOLD_IB_QPS_PER_CONNECTION", value, most)?;
        }
        if let Some(value) = set("RINGFOLD_IB_QPS_MAX") {
            self.ib_queue_pairs_max = count("RINGFOLD_IB_QPS_MAX", value)?;
        }
        if let Some(value) = set("RINGFOLD_IB_BYTES_MAX") {
            self.ib_bytes_max = bytes("RINGFOLD_IB_BYTES_MAX", value)?;
        }
        Ok(())
    }

    /// What is set about RDMA, as its transport takes it.
    #[must_use]
    pub fn rdma(&self) -> rdma::Settings {
        let mut settings = rdma::Settings::default();
        settings.devices = self.ib_devices.clone();
        settings.gid_index = self.ib_gid_index;
        settings.traffic_class = self.ib_traffic_class;
        settings.service_level = self.ib_service_level;
        settings.partition_key_index = self.ib_partition_key_index;
        settings.adaptive_routing = self.ib_adaptive_routing;
        settings.timeout = self.ib_timeout;
        settings.retries = self.ib_retries;
        settings.relaxed_ordering = self.ib_relaxed_ordering;
        settings.queue_pairs = self.ib_queue_pairs;
        settings.queue_pairs_max = self.ib_queue_pairs_max;
        settings.bytes_max = self.ib_bytes_max;
        settings
    }
}

fn flag(variable: &'static str, value: &str) -> Result<bool, ConfigError> {
    Ok(number(variable, value, 0..=1_u8)? == 1)
}
