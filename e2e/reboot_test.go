//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rebooting returns an instance whose files outlive a reboot of the machine, and says whether that has been: the tests
// that use it are run twice by .ci/vm -reboot, with a reboot between.
func rebooting(t *testing.T, extra ...string) (in *instance, again bool) {
	t.Helper()
	boot := os.Getenv("MONOPOD_E2E_BOOT")
	if boot == "" {
		t.Skip("needs a machine that is rebooted: .ci/vm -reboot")
	}
	dir := filepath.Join("/var/lib/rebooted", t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in = newInstanceIn(t, dir, extra...)
	if boot == "1" && !strings.Contains(t.Name(), "InTheMiddle") {
		t.Cleanup(syscall.Sync) // the boot ends with a power cut
	}
	if again = boot != "1"; again {
		t.Cleanup(in.cleanup)
	}
	return in, again
}

func TestRebootWithoutTheServerRunsAllPods(t *testing.T) {
	const ca = "/var/lib/rebooted/ca.pem"
	in, again := rebooting(t, `sources: [{name: fleet, url: "https://127.0.0.1:18443/pods.yaml", period: 1s, caFile: `+ca+`}]`)
	greeter := sleeper("greeter", "echo $GREETING", "    env: [{name: GREETING, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]")
	if !again {
		site := &site{t: t, address: "127.0.0.1:18443"}
		site.says(strings.Join([]string{settingsOfFleet, greeter, sleeper("plain", ":")}, "---\n"))
		site.open()
		defer site.server.Close()
		site.authority(ca)
		in.start()
		in.ready("greeter")
		in.ready("plain")
		if err := in.signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		return
	}
	// The clock is in 1970 at first: what runs is the copy, although the server answers.
	right := time.Now()
	setClock(t, time.Unix(3600, 0))
	ours, site := newAuthority(t), &site{t: t, address: "127.0.0.1:18443"}
	ours.write(ca)
	site.shown.Store(ours.certificate(right.Add(-time.Hour), right.Add(24*time.Hour)))
	site.says(sleeper("another", ":"))
	site.open()
	in.start()
	untouched := in.untouched("greeter", "plain")
	if said := in.reports("the clock of this machine says 1970-01-01; set the clock"); !strings.Contains(said, "this is the copy on disk of the answer of ") {
		t.Errorf("get sources:\n%s", said)
	}
	site.server.Close()
	setClock(t, right.Add(time.Since(right)))
	if out, err := in.run("logs", "greeter"); err != nil || !strings.HasSuffix(out, "hello\n") {
		t.Errorf("logs: %q, %v", out, err)
	}
	if said := in.reports("connection refused"); !strings.Contains(said, "this is the copy on disk of the answer of ") {
		t.Errorf("get sources:\n%s", said)
	}
	untouched("with the clock right and the server gone")
	in.write(in.config, strings.Replace(in.read("config.yaml"), "sources: ", "# sources: ", 1))
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	in.start()
	in.gone("greeter") // with its source
}
