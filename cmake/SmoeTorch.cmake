# Defines the imported target smoe::torch from a LibTorch folder (a wheel's site-packages/torch or
# an unpacked libtorch).
#
# TorchConfig.cmake is not used: in a CUDA wheel it stops where no matching CUDA toolkit is
# installed, although compiling against the headers and running on a CPU needs none.
set(_smoe_torch_candidates)
if(SMOE_TORCH_ROOT)
  list(APPEND _smoe_torch_candidates ${SMOE_TORCH_ROOT})
else()
  # The environment's list has colons; CMake's own searches read both.
  string(REPLACE ":" ";" _smoe_environment_prefixes "$ENV{CMAKE_PREFIX_PATH}")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH _smoe_environment_prefixes)
    list(APPEND _smoe_torch_candidates ${prefix} ${prefix}/torch ${prefix}/../..)
  endforeach()
  file(GLOB _smoe_venv_torch ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
  list(APPEND _smoe_torch_candidates ${_smoe_venv_torch})
endif()
set(_smoe_torch_dir)
foreach(candidate IN LISTS _smoe_torch_candidates)
  if(EXISTS ${candidate}/include/ATen/ATen.h AND EXISTS ${candidate}/lib/libtorch_cpu.so)
    get_filename_component(_smoe_torch_dir ${candidate} ABSOLUTE)
    break()
  endif()
endforeach()
if(NOT _smoe_torch_dir)
  message(FATAL_ERROR
    "LibTorch was not found (looked in: ${_smoe_torch_candidates}).\n"
    "Run tools/setup.sh, or pass -DSMOE_TORCH_ROOT=DIR, where DIR holds include/ATen/ATen.h and lib/libtorch_cpu.so.")
endif()
set(_smoe_torch_version "of unknown version")
if(EXISTS ${_smoe_torch_dir}/include/torch/headeronly/version.h)
  file(STRINGS ${_smoe_torch_dir}/include/torch/headeronly/version.h _smoe_version_lines
       REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^0-9;]" "" _smoe_version_numbers "${_smoe_version_lines}")
  string(REPLACE ";" "." _smoe_torch_version "${_smoe_version_numbers}")
endif()
message(STATUS "LibTorch ${_smoe_torch_version}: ${_smoe_torch_dir}")

add_library(smoe_torch INTERFACE)
add_library(smoe::torch ALIAS smoe_torch)
# The wheel carries a newer fmt than Debian's spdlog was built with; -idirafter makes the system's
# headers win, and marks LibTorch's as system headers.
target_compile_options(smoe_torch INTERFACE
  "SHELL:-idirafter ${_smoe_torch_dir}/include"
  "SHELL:-idirafter ${_smoe_torch_dir}/include/torch/csrc/api/include")
# LibTorch is built with NDEBUG, and some of its classes have a member more without it: code that includes them has to
# agree with it in every build type.
target_compile_definitions(smoe_torch INTERFACE $<$<CONFIG:Debug>:NDEBUG>)
# libtorch.so itself is not linked: it is empty, and in a CUDA wheel it pulls in every CUDA library.
target_link_libraries(smoe_torch INTERFACE
  ${_smoe_torch_dir}/lib/libtorch_cpu.so ${_smoe_torch_dir}/lib/libc10.so)
# at::parallel_for is inline and runs serially in code that is compiled without OpenMP. One OpenMP runtime
# only: the wheel's own, which is what libtorch_cpu.so loads, so -fopenmp is not passed to the linker.
file(GLOB _smoe_openmp ${_smoe_torch_dir}/lib/libgomp*.so*)
if(NOT _smoe_openmp)
  message(FATAL_ERROR "${_smoe_torch_dir}/lib has no libgomp: only builds of LibTorch with GNU OpenMP are supported.")
endif()
# Not for libFuzzer: clang's OpenMP is another runtime. Not for ThreadSanitizer: it cannot see the locks of libgomp,
# which is not instrumented, and would take every parallel loop for a race.
if(NOT SMOE_BUILD_FUZZERS AND NOT SMOE_SANITIZE_THREADS)
  target_compile_options(smoe_torch INTERFACE -fopenmp)
else()
  target_compile_options(smoe_torch INTERFACE -fopenmp-simd)  # vectorised loops, no runtime
endif()
target_link_libraries(smoe_torch INTERFACE ${_smoe_openmp})
set(_smoe_torch_rpath ${_smoe_torch_dir}/lib)
# libtorch_cpu.so of a CUDA wheel loads these two; they lie beside it as wheels of their own.
file(GLOB _smoe_nvidia_dirs ${_smoe_torch_dir}/../nvidia/*/lib)
list(APPEND _smoe_torch_rpath ${_smoe_nvidia_dirs})
foreach(dir IN LISTS _smoe_nvidia_dirs)
  target_link_options(smoe_torch INTERFACE "LINKER:-rpath-link,${dir}")
endforeach()
foreach(dir IN LISTS _smoe_torch_rpath)
  target_link_options(smoe_torch INTERFACE "LINKER:-rpath,${dir}")
endforeach()
if(SMOE_CUDA)
  if(NOT EXISTS ${_smoe_torch_dir}/lib/libtorch_cuda.so)
    message(FATAL_ERROR "SMOE_CUDA is ON, but ${_smoe_torch_dir}/lib has no libtorch_cuda.so. Use a CUDA build of LibTorch.")
  endif()
  # Nothing refers to libtorch_cuda.so by symbol: its operators register themselves when it loads. What it needs
  # itself (cuDNN, NCCL, NVSHMEM and so on) is the loader's concern, so that it links where they are not installed.
  target_link_options(smoe_torch INTERFACE "LINKER:--allow-shlib-undefined" "LINKER:--no-as-needed"
    ${_smoe_torch_dir}/lib/libtorch_cuda.so ${_smoe_torch_dir}/lib/libc10_cuda.so "LINKER:--as-needed")
  target_compile_definitions(smoe_torch INTERFACE SMOE_CUDA=1)
endif()

# smoe_use_c10d(TARGET): what the process groups of LibTorch need besides it. Their headers include those of the
# libraries below; the code itself is part of LibTorch.
find_path(SMOE_GLOO_INCLUDE gloo/config.h REQUIRED)
mark_as_advanced(SMOE_GLOO_INCLUDE)
set(_smoe_nccl_includes)
if(SMOE_CUDA)
  file(GLOB _smoe_cuda_includes ${_smoe_torch_dir}/../nvidia/*/include)
  foreach(dir IN LISTS _smoe_cuda_includes)
    if(EXISTS ${dir}/nccl.h)
      set(_smoe_nccl_includes ${_smoe_cuda_includes})
    endif()
  endforeach()
  if(NOT _smoe_nccl_includes)
    message(STATUS "NCCL's headers are not installed: no training on several GPUs (SMOE_TORCH_ROUTE=full tools/setup.sh)")
  endif()
endif()
function(smoe_use_c10d target)
  target_include_directories(${target} SYSTEM PRIVATE ${SMOE_GLOO_INCLUDE})
  if(_smoe_nccl_includes)
    target_compile_definitions(${target} PRIVATE SMOE_NCCL=1)
    foreach(dir IN LISTS _smoe_nccl_includes)
      target_compile_options(${target} PRIVATE "SHELL:-idirafter ${dir}")
    endforeach()
  endif()
endfunction()

# smoe_use_cuda_headers(TARGET): for the few files that include headers of CUDA itself, which a wheel brings along;
# a toolkit's are the second choice. Nothing without SMOE_CUDA.
if(SMOE_CUDA)
  find_path(SMOE_CUDA_INCLUDE cuda_runtime_api.h REQUIRED
            HINTS ${_smoe_cuda_includes} $ENV{CUDA_HOME}/include /usr/local/cuda/include)
  mark_as_advanced(SMOE_CUDA_INCLUDE)
endif()
function(smoe_use_cuda_headers target)
  if(SMOE_CUDA)
    target_compile_options(${target} PRIVATE "SHELL:-idirafter ${SMOE_CUDA_INCLUDE}")
  endif()
endfunction()
