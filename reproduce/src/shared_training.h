// Processes that run an experiment in the same output directory share its trainings: each takes those that no other
// has, and in the end all read the same finished runs. Locks are files in <output>/<scale>/locks.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "experiment.h"

namespace rf::reproduce {

// Calls `work` once for each part, under a lock. Parts that another process has come last, when it has ended or let go
// of them; `work` then finds what it did. Returns the signal that ended `work`, or 0. A signal while it waits ends the
// process.
int share(const Context& context, const std::string& name, const std::vector<std::string>& parts,
          const std::function<int(size_t part)>& work);

// What was trained, in the order of the arms. With a signal, the arms that it kept from being trained are empty.
template <typename Trained>
struct SharedTraining {
  std::vector<Trained> arms;
  int signal = 0;
};

// Shares the training of arms. `train` returns something with a member `signal`, and what it adds to the log of its
// context is in the log in the order of `arms`, too.
template <typename Train>
auto train_shared(const Context& context, const std::string& name, const std::vector<std::string>& arms, Train train) {
  SharedTraining<decltype(train(context, arms.front()))> trained;
  trained.arms.resize(arms.size());
  std::vector<RunLog> logs(arms.size());
  trained.signal = share(context, name, arms, [&](size_t i) {
    trained.arms[i] = train(context.with(logs[i]), arms[i]);
    return trained.arms[i].signal;
  });
  for (const RunLog& log : logs) context.log.add(log);
  return trained;
}

}  // namespace rf::reproduce
