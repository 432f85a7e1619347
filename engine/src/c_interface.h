// What the functions of the C interface share (rf/engine.h): errors as codes, and checks of arguments.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <string>

#include "rf/engine.h"
#include "rf/engine/model.h"
#include "rf/io/error.h"

namespace rf::engine {

inline std::string& last_error() {
  static thread_local std::string text;
  return text;
}

// Runs an action and turns what it throws into a status.
template <class Action>
rf_status guarded(const Action& action) noexcept {
  try {
    action();
    return RF_OK;
  } catch (const Error& error) {
    last_error() = error.what();
    return RF_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    last_error() = "[memory] the work must fit into memory, got an allocation that failed";
    return RF_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return RF_INTERNAL;
  }
}

// A copy of a caller's struct. Structs of older callers lack the last fields.
template <class Struct>
Struct copied(const Struct* given, const char* name) {
  if (given == nullptr) fail("engine", "{} must not be NULL, got NULL", name);
  if (given->struct_size < sizeof(size_t) || given->struct_size > sizeof(Struct)) {
    fail("engine", "{}.struct_size must be that of this version, {}, got {}", name, sizeof(Struct), given->struct_size);
  }
  Struct copy = {};
  std::memcpy(&copy, given, given->struct_size);
  return copy;
}

inline void check_output(const float* out) {
  if (out == nullptr) fail("engine", "out must not be NULL, got NULL");
}

// The number of an enumerator, which a caller in C may have set to any: read as an enum it could be undefined.
template <class Enum>
int number_of(const Enum& value, int end, const char* name) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  if (number < 0 || number >= end) fail("engine", "{} must be a known one, got {}", name, number);
  return number;
}

inline Precision precision_of(const rf_engine_precision& precision) {
  return static_cast<Precision>(number_of(precision, RF_ENGINE_INT8 + 1, "precision"));
}

inline Pooling pooling_of(const rf_engine_pooling& pooling) {
  return static_cast<Pooling>(number_of(pooling, RF_ENGINE_MEAN_SQRT_LEN + 1, "pooling"));
}

}  // namespace rf::engine
