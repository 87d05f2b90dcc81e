//! Compares the declared layout with that of the headers, if there are headers and a C compiler.

use std::fmt::Write as _;
use std::process::Command;

use ringfold_harness::Folder;

use super::abi::{LAYOUT, LINK_LAYER_ETHERNET, LINK_LAYER_INFINIBAND, PORT_GRH_REQUIRED};

/// The names in the headers.
const NAMES: &[(&str, &str)] = &[
    ("ContextOps", "struct ibv_context_ops"),
    ("Mr", "struct ibv_mr"),
    ("Wc", "struct ibv_wc"),
    ("Sge", "struct ibv_sge"),
    ("RecvWr", "struct ibv_recv_wr"),
    ("SendWr", "struct ibv_send_wr"),
    ("QpInitAttr", "struct ibv_qp_init_attr"),
    ("QpInitAttrEx", "struct ibv_qp_init_attr_ex"),
    ("GlobalRoute", "struct ibv_global_route"),
    ("AhAttr", "struct ibv_ah_attr"),
    ("QpAttr", "struct ibv_qp_attr"),
    ("PortAttr", "struct ibv_port_attr"),
    ("DeviceAttr", "struct ibv_device_attr"),
    ("GidEntry", "struct ibv_gid_entry"),
    ("AsyncEvent", "struct ibv_async_event"),
    ("ConnParam", "struct rdma_conn_param"),
    ("CmEvent", "struct rdma_cm_event"),
];

#[test]
fn the_layout_is_that_of_the_header() {
    // This header includes verbs.h.
    if !std::path::Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        println!("skipped: no rdma/rdma_cma.h (librdmacm-dev)");
        return;
    }
    let mut source = String::from("#include <rdma/rdma_cma.h>\n#include <stddef.h>\n");
    let mut say = |line: String| writeln!(source, "{line}").unwrap();
    for (name, size, fields) in LAYOUT {
        let (_, theirs) = NAMES.iter().find(|(ours, _)| ours == name).unwrap();
        // Headers differ in the last fields, for which there is room.
        let compare = if *name == "PortAttr" { "<=" } else { "==" };
        say(format!("_Static_assert(sizeof({theirs}) {compare} {size}, \"{name}\");"));
        for (field, offset) in *fields {
            let field = match *field {
                "remote_addr" => "wr.rdma.remote_addr",
                "rkey" if *name == "SendWr" => "wr.rdma.rkey",
                same => same,
            };
            say(format!("_Static_assert(offsetof({theirs}, {field}) == {offset}, \"{field}\");"));
        }
    }
    for (structure, field, offset) in [
        ("ibv_device", "transport_type", 20),
        ("ibv_device", "name", 24),
        ("ibv_context", "ops", 8),
        ("ibv_context", "async_fd", 268),
        ("ibv_comp_channel", "fd", 8),
        ("ibv_cq", "cqe", 28),
        ("ibv_qp", "qp_num", 52),
        ("rdma_event_channel", "fd", 0),
        ("rdma_cm_id", "context", 16),
        ("rdma_cm_id", "port_num", 348),
    ] {
        say(format!(
            "_Static_assert(offsetof(struct {structure}, {field}) == {offset}, \"{field}\");"
        ));
    }
    for (name, value) in [
        ("IBV_LINK_LAYER_INFINIBAND", LINK_LAYER_INFINIBAND),
        ("IBV_LINK_LAYER_ETHERNET", LINK_LAYER_ETHERNET),
        ("IBV_QPF_GRH_REQUIRED", PORT_GRH_REQUIRED),
    ] {
        say(format!("_Static_assert({name} == {value}, \"{name}\");"));
    }
    let folder = Folder::new();
    let file = folder.file("layout.c", source);
    for compiler in ["cc", "aarch64-linux-gnu-gcc"] {
        let mut command = Command::new(compiler);
        // The header is the same on both architectures, but a cross compiler does not look for it
        // there.
        command.args(["-fsyntax-only", "-idirafter", "/usr/include"]).arg(&file);
        match command.output() {
            Ok(output) => assert!(
                output.status.success(),
                "{compiler}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
            Err(_) => println!("skipped: no {compiler}"),
        }
    }
}
