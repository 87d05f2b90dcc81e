//! The answer as JSON. Times are in seconds, rates in bytes per second.

use ringfold_topology::Level;
use serde_json::{Value, json};

use super::answer::Answer;
use super::cell::{Cell, Size, bandwidths};

pub(super) fn answer(answers: &[Answer]) -> anyhow::Result<String> {
    let fabrics: Vec<Value> = answers.iter().map(fabric).collect();
    let collective = answers.first().map(|it| it.question.collective.to_string());
    let document = json!({ "collective": collective, "fabrics": fabrics });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn fabric(Answer { question, sizes }: &Answer) -> Value {
    let layout = &question.job.layout;
    let rows: Vec<Value> = sizes
        .iter()
        .flat_map(|size| size.cells.iter().map(|cell| row(size, cell, layout.size())))
        .collect();
    json!({
        "fabric": question.place,
        "ranks": layout.size(),
        "hosts": layout.hosts(),
        "links": layout.links_between().to_string(),
        "streams_of_other_jobs": question.job.streams(),
        "cells": rows,
    })
}

fn row(size: &Size, cell: &Cell, ranks: usize) -> Value {
    let mut row = json!({
        "bytes": size.bytes,
        "algorithm": cell.algorithm,
        "is_chosen": cell.algorithm == size.chosen,
    });
    match &cell.outcome {
        Err(operations) => row["too_many_operations"] = json!(operations),
        Ok(outcome) => {
            let [alone, bus] = bandwidths(&size.call, size.bytes, ranks, outcome.time_ps);
            row["seconds"] = json!(outcome.time_ps as f64 / 1e12);
            row["bandwidth"] = json!(alone * 1e9);
            row["bus_bandwidth"] = json!(bus * 1e9);
            row["idle"] = json!(outcome.idle);
            row["events"] = json!(outcome.events);
            row["chunks"] = json!(outcome.chunks);
            row["rounds"] = json!(outcome.rounds);
            row["ranks_simulated"] = json!(outcome.standing);
            for (level, bytes) in Level::ALL.into_iter().zip(outcome.levels) {
                row["bytes_by_level"][format!("{level:?}").to_lowercase()] = json!(bytes);
            }
            let links = outcome.links.iter().map(|link| {
                let seconds = link.full_ps as f64 / 1e12;
                json!({
                    "link": link.name, "bytes": link.bytes, "used": link.used,
                    "full_seconds": seconds,
                })
            });
            row["links"] = links.collect();
        }
    }
    row
}
