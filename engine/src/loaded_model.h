// What a Model is made of, for the classes that compute with it in another way.
#pragma once

#include "encoder.h"
#include "heads.h"

namespace rf::engine {

struct LoadedModel {
  const Encoder& encoder;
  const HeadLayers& head;
};

}  // namespace rf::engine
