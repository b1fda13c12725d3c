# Compiles through ccache where it is installed. A precompiled header is only cached when ccache is
# told that its time stamps and its #define lines need not match byte for byte.
find_program(SMOE_CCACHE ccache)
if(SMOE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${SMOE_CCACHE})
endif()
