package signals_test

import (
	"fmt"
	"os"
	"os/exec"
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
	fmt.Printf("%s%v\n", out, err)
}

func TestChildrenDoNotIgnoreWhatTheParentWasStartedToIgnore(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for trap, want := range map[string]string{
		`trap "" HUP INT QUIT PIPE TERM`: "[hangup interrupt]\nSigIgn:\t0000000000000000\n<nil>\n",
		`trap "" INT`:                    "[interrupt]\nSigIgn:\t0000000000000000\n<nil>\n",
		`true`:                           "[]\nSigIgn:\t0000000000000000\n<nil>\n",
	} {
		signals.Adopt() // this test may itself be run by nohup
		c := exec.Command("sh", "-c", trap+`; exec "$0"`, exe)
		c.Env = append(os.Environ(), actAsParent+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("%s: %v\n%s, want\n%s", trap, err, out, want)
		}
	}
}
