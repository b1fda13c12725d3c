// What a program in the locked-down sandbox cannot reach.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "eval/code_test_support.h"
#include "temporary_folder.h"

namespace smoe::testing {
namespace {

namespace fs = std::filesystem;
using Isolation = LockedDownTest;

// Defines refused(action, words): the action must raise OSError.
const std::string kRefused =
    "import ctypes, os, shutil, socket, subprocess, sys\n"
    "def refused(action, *words):\n"
    "    try:\n"
    "        action(*words)\n"
    "    except OSError:\n"
    "        return\n"
    "    raise AssertionError(f'not refused: {words}')\n";

TEST_F(Isolation, DeletingTheSystemDeletesNothing) {
  TemporaryFolder folder;
  std::ofstream(folder / "precious") << "data";
  fs::permissions(folder.path(), fs::perms::all);
  const ProgramResult result = run_python(kRefused +
                                          "subprocess.run(['rm', '-rf', '--no-preserve-root', '/'], "
                                          "stderr=subprocess.DEVNULL)\n"
                                          "shutil.rmtree('/usr/bin', ignore_errors=True)\n"
                                          "refused(os.remove, '/usr/bin/env')\n"
                                          "refused(os.remove, '" +
                                          (folder / "precious").string() +
                                          "')\n"
                                          "assert os.path.exists('/usr/bin/env')\n");
  EXPECT_VERDICT(result, kPassed);
  EXPECT_TRUE(fs::exists(folder / "precious"));
  EXPECT_TRUE(fs::exists("/usr/bin/env"));
}

TEST_F(Isolation, WritingWorksOnlyInTheWorkFolder) {
  const ProgramResult result = run_python(
      kRefused +
      "for path in ('/x', '/usr/x', '/etc/x', '/dev/shm/x', '/dev/x', '/var/tmp/x', '/home/x', '/root/x',\n"
      "             '/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/sys/x', '/run/x'):\n"
      "    refused(open, path, 'w')\n"
      "for path in ('here', '/tmp/there'):\n"
      "    open(path, 'w').write('x')\n"
      "assert sorted(os.listdir('/tmp')) == ['driver.py', 'here', 'program.py', 'there']\n");
  EXPECT_VERDICT(result, kPassed);
}

TEST_F(Isolation, SecretsCannotBeRead) {
  TemporaryFolder folder;
  std::ofstream(folder / "secret") << "key";
  fs::permissions(folder.path(), fs::perms::all);
  setenv("SMOE_TEST_SECRET", "key", 1);
  const ProgramResult result = run_python(
      kRefused + "for path in ('/etc/shadow', '/etc/passwd', '/root', '/home', '/var', '/run', '/mnt', '" +
      std::string(SMOE_SOURCE_DIR) + "', '" + (folder / "secret").string() +
      "'):\n"
      "    refused(os.stat, path)\n"
      "assert 'SMOE_TEST_SECRET' not in os.environ\n"
      "assert os.getuid() != 0\n"
      "processes = [name for name in os.listdir('/proc') if name.isdigit()]\n"
      "assert len(processes) <= 4, processes\n"
      "assert socket.gethostname() == 'sandbox'\n");
  unsetenv("SMOE_TEST_SECRET");
  EXPECT_VERDICT(result, kPassed);
}

TEST_F(Isolation, TheLoopbackOfTheMachineCannotBeReached) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(server, 1), 0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(server, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const ProgramResult result =
      run_python(kRefused + "refused(socket.create_connection, ('127.0.0.1', " + port +
                 "), 2)\n"
                 "refused(socket.create_connection, ('192.0.2.1', 80), 2)\n"
                 "refused(socket.getaddrinfo, 'example.com', 80)\n");
  EXPECT_VERDICT(result, kPassed);
  pollfd event{server, POLLIN, 0};
  EXPECT_EQ(poll(&event, 1, 100), 0) << "a connection arrived";
  close(server);
}

TEST_F(Isolation, NoDescriptorOfTheEvaluationIsInherited) {
  const int leaky = open("/etc/hostname", O_RDONLY);  // without O_CLOEXEC, as some libraries do it
  ASSERT_GE(leaky, 0);
  ASSERT_EQ(dup2(leaky, 57), 57);
  const ProgramResult result = run_python(
      "import os\n"
      "numbers = []\n"
      "for number in range(256):\n"
      "    try:\n"
      "        os.fstat(number)\n"
      "        numbers.append(number)\n"
      "    except OSError:\n"
      "        pass\n"
      "assert numbers == [0, 1, 2], [(n, os.readlink(f'/proc/self/fd/{n}')) for n in numbers]\n");
  close(leaky);
  close(57);
  EXPECT_VERDICT(result, kPassed);
}

TEST_F(Isolation, NoNewNamespacesAndNoRights) {
  const ProgramResult result = run_python(
      "import ctypes\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x20000\n"
      "assert libc.unshare(CLONE_NEWUSER) == -1\n"
      "assert libc.unshare(CLONE_NEWNS) == -1\n"
      "status = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)\n"
      "assert int(status['CapEff'], 16) == 0 and int(status['CapBnd'], 16) == 0, status\n"
      "assert status['NoNewPrivs'].strip() == '1', status\n");
  EXPECT_VERDICT(result, kPassed);
}

TEST_F(Isolation, SignalsReachOnlyTheProgramItself) {
  // The other process of the namespace is its first one, which the kernel protects.
  const ProgramResult result = run_python(kRefused + "os.kill(1, 9)\nrefused(os.kill, -1, 9)");
  EXPECT_VERDICT(result, kPassed);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(Isolation, ProgramsDoNotSeeEachOthersFiles) {
  const std::string text =
      "import os, time\n"
      "assert not os.path.exists('/tmp/mark')\n"
      "open('/tmp/mark', 'w').write('x')\n"
      "time.sleep(0.3)";
  const std::vector<Program> programs(4, Program{ProgramLanguage::kPython, text});
  for (const ProgramResult& result : CodeRunner(short_options()).run_all(programs)) {
    EXPECT_VERDICT(result, kPassed);
  }
}

std::string error_of(const SandboxOptions& options) {
  try {
    CodeSandbox sandbox(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SandboxRefusal, NamesThePackageAndTheUnsafeModeWhereBubblewrapIsMissing) {
  const std::string text = error_of({SandboxMode::kLockedDown, "/nonexistent/bwrap"});
  for (const char* part : {"/nonexistent/bwrap", "package bubblewrap", "--unsafe-code-execution"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

TEST_F(LockedDownTest, LooksPastFoldersOfPathThatCannotBeSearched) {
  TemporaryFolder folder;
  const std::string path = std::getenv("PATH");
  fs::permissions(folder.path(), fs::perms::none);
  setenv("PATH", (folder.path().string() + "/bin:" + path).c_str(), 1);
  EXPECT_NO_THROW(CodeSandbox({}));
  setenv("PATH", path.c_str(), 1);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(SandboxRefusal, TellsWhyBubblewrapIsNotPermitted) {
  TemporaryFolder folder;
  const fs::path program = folder / "bwrap";
  std::ofstream(program) << "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n";
  const fs::perms for_all = fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec;
  fs::permissions(folder.path(), for_all);
  fs::permissions(program, for_all);
  const std::string text = error_of({SandboxMode::kLockedDown, program.string()});
  for (const char* part :
       {"No permissions to create new namespace", "user namespaces", "--unsafe-code-execution"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

TEST_F(LockedDownTest, RefusesImpossibleLimits) {
  const CodeSandbox sandbox({});
  SandboxLimits limits;
  limits.wall_seconds = 0.0;
  EXPECT_THROW(sandbox.run({{"true"}, {}, {}}, limits), ConfigError);
  limits = {};
  limits.open_files = 3;
  EXPECT_THROW(sandbox.run({{"true"}, {}, {}}, limits), ConfigError);
  EXPECT_THROW(sandbox.run({{}, {}, {}}, {}), ConfigError);
  EXPECT_THROW(sandbox.run({{"true"}, {{"../x", ""}}, {}}, {}), ConfigError);
}

}  // namespace
}  // namespace smoe::testing
