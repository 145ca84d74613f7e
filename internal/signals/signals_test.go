package signals_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"monopod/internal/signals"
)

// actAsParent has the test program start a child that shows what it ignores.
const actAsParent = "MONOPOD_TEST_SIGNALS"

func TestMain(m *testing.M) {
	if os.Getenv(actAsParent) == "" {
		os.Exit(m.Run())
	}
	fmt.Println(signals.Adopt())
	out, err := exec.Command("grep", "SigIgn", "/proc/self/status").CombinedOutput()
	fmt.Println(ignored(string(out)), err)
}

// ignored returns the ignored signals of a line of /proc/PID/status. Those above 31 are left out: what started the test may have ignored
// signals of its C library.
func ignored(line string) string {
	_, mask, _ := strings.Cut(strings.TrimSpace(line), "\t")
	bits, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", bits&(1<<31-1))
}

func TestChildrenDoNotIgnoreWhatTheParentWasStartedToIgnore(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for trap, want := range map[string]string{
		`trap "" HUP INT QUIT PIPE TERM`: "[hangup interrupt]\n0 <nil>\n",
		`trap "" INT`:                    "[interrupt]\n0 <nil>\n",
		`true`:                           "[]\n0 <nil>\n",
	} {
		signals.Adopt() // this test may itself be run by nohup
		c := exec.Command("sh", "-c", trap+`; exec "$0"`, exe)
		c.Env = append(os.Environ(), actAsParent+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("%s: %v\n%s, want\n%s", trap, err, out, want)
		}
	}
}
