//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLockFile: when another agent wants the lock file, it gets it once the pods of monopod, their host ports and its bridge are gone.
// monopod then exits, and after a restart it waits until the other agent has exited.
func TestLockFile(t *testing.T) {
	in := newInstance(t)
	lock := filepath.Join(in.dir, "agent.lock")
	in.write(in.config, in.read("config.yaml")+"lockFile: "+lock+"\nexitOnLockContention: true\n")
	port := ports.Take(t)
	in.put("web", sleeper("web", "echo hello >/index.html; httpd -p 80 -h /", fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]", port)))
	in.start()
	in.ready("web")
	answers := func() error {
		client := http.Client{Timeout: time.Second}
		r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != "hello\n" {
			return fmt.Errorf("it says %q, %w", b, err)
		}
		return nil
	}
	in.eventually("the host port answers", answers)
	const look = "iptables-save; nft -s list ruleset; ip -o addr; ip route; "
	machine := func() string {
		out, err := exec.Command("sh", "-c", look).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	rule, subnet := fmt.Sprintf("tcp . %d : ", port), strings.TrimSuffix(in.subnet, "0/24")
	if now := machine(); !strings.Contains(now, rule) || !strings.Contains(now, subnet) {
		t.Fatalf("neither %s nor %s is in\n%s", rule, subnet, now)
	}

	// The other agent is a separate process, like a kubelet. It writes to a file what it sees once it has the lock.
	seen, held := filepath.Join(in.dir, "seen"), filepath.Join(in.dir, "held")
	other := exec.Command("flock", lock, "sh", "-c", "{ "+look+"} >"+seen+" 2>&1; touch "+held+"; cat")
	release, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	defer release.Close()
	select {
	case err := <-in.exited:
		if err != nil {
			t.Errorf("monopod has ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatalf("monopod does not end\n%s", in.log.tail())
	}
	in.cmd = nil
	in.eventually("the other agent has the lock", func() error { _, err := os.Stat(held); return err })
	if then := in.read("seen"); strings.Contains(then, rule) || strings.Contains(then, subnet) || !strings.Contains(then, "lo ") {
		t.Errorf("the other agent finds\n%s", then)
	}
	if pids := shimsOf(in); len(pids) > 0 {
		t.Errorf("there are shims: %v", pids)
	}
	if !in.log.contains("another agent takes over this machine") {
		t.Errorf("monopod does not say why it has ended:\n%s", in.log.tail())
	}

	waited := make(chan bool, 1)
	go func() { // start returns when monopod answers, which it does with the lock only
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if in.log.contains("waiting for its lock file") {
				break
			}
		}
		_, err := in.run("get", "pods")
		waited <- err != nil
		_ = release.Close()
	}()
	in.start()
	if !<-waited {
		t.Error("monopod answers without the lock")
	}
	if err := <-ended; err != nil {
		t.Error(errors.Join(errors.New("the other agent"), err))
	}
	in.ready("web")
	in.eventually("the host port answers again", answers)
}
