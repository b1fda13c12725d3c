// The JSON value of a line (internal to the readers of JSON lines).
#pragma once

#include <nlohmann/json.hpp>

#include "smoe/data/document_reader.h"

namespace smoe {

// Throws DataError with file:line:column for invalid UTF-8 and for what is not JSON. A record is one line.
nlohmann::json parse_document_json(const DocumentRecord& record);

}  // namespace smoe
