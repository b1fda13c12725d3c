# smoe_add_library(NAME [TORCH] SOURCES ... LINK ...), smoe_add_tool, smoe_add_tests: every target
# of ours gets the same warnings, and those that see LibTorch share one precompiled header.
function(smoe_set_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
    $<$<BOOL:${SMOE_WARNINGS_AS_ERRORS}>:-Werror>)
  # GCC 12 sees overlapping copies in `"text" + std::string` that do not exist (GCC bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include)
  if(SMOE_BUILD_FUZZERS)
    # Coverage for libFuzzer in all of our code; its main comes with the programs of fuzz/ only.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(SMOE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                             -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
  if(SMOE_SANITIZE_THREADS)
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  endif()
endfunction()

# LibTorch's headers take seconds to parse; parse them once.
function(smoe_use_torch target)
  if(NOT TARGET smoe_torch_pch)
    # Unlike file(WRITE), this leaves an unchanged file alone: everything depends on it.
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/smoe_torch_pch.cpp CONTENT "// Carries the precompiled header.\n")
    add_library(smoe_torch_pch OBJECT ${CMAKE_BINARY_DIR}/smoe_torch_pch.cpp)
    smoe_set_options(smoe_torch_pch)
    target_link_libraries(smoe_torch_pch PRIVATE smoe::torch)
    target_precompile_headers(smoe_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/torch_pch.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM smoe_torch_pch)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # Part of every program: a definition in a library that nothing refers to would not be linked.
    target_link_libraries(${target} PRIVATE smoe_mkl_dispatch)
  endif()
endfunction()

function(smoe_add_library name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  smoe_set_options(${name})
  target_link_libraries(${name} PUBLIC ${arg_LINK})
  if(arg_TORCH)
    smoe_use_torch(${name})
  endif()
endfunction()

# A tool NAME (smoe-train) is built from tools/NAME with underscores (smoe_train.cpp). The target smoe-tools
# builds all of them.
function(smoe_add_tool name)
  cmake_parse_arguments(arg "TORCH" "" "LINK" ${ARGN})
  string(REPLACE "-" "_" source ${name})
  add_executable(${name} ${source}.cpp)
  smoe_set_options(${name})
  if(NOT TARGET smoe-tools)
    add_custom_target(smoe-tools)
  endif()
  add_dependencies(smoe-tools ${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK} CLI11::CLI11)
  if(arg_TORCH)
    smoe_use_torch(${name})
  endif()
endfunction()

# One test program per area and kind; every TEST becomes a ctest entry labelled with both.
# KIND: unit | property | grad | golden | e2e | gpu.
function(smoe_add_tests name)
  cmake_parse_arguments(arg "TORCH" "AREA;KIND" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  smoe_set_options(${name})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    SMOE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" SMOE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(arg_TORCH)
    target_link_libraries(${name} PRIVATE smoe::torch)
    smoe_use_torch(${name})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS "${arg_AREA};${arg_KIND}" TIMEOUT 600)
endfunction()
