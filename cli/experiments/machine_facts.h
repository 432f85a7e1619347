// The machine and build that a figure belongs to.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace rf::cli {

// {cpu, cores, threads, target, torch, commit}.
nlohmann::json machine_facts();

}  // namespace rf::cli
