//go:build e2e

package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/testbed"
)

const (
	// idleFor is the time during which nothing may be written, after calmFor without activity.
	idleFor = 20 * time.Second
	calmFor = 3 * time.Second
)

// letTimePass sleeps: the test is about what happens by itself during that time.
func letTimePass(d time.Duration) { time.Sleep(d) }

// changes returns the modification times in the directories, by path.
func changes(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			s := info.Sys().(*syscall.Stat_t)
			all[path] = fmt.Sprint(s.Mtim, s.Ctim, s.Size, s.Ino)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// podsMemory is the memory limit of the agent with 30 pods. Memory used by requests is returned within a minute.
const podsMemory = 45 << 20

// hasAtMost waits until the memory of the agent is at most this.
func (in *instance) hasAtMost(bytes uint64) {
	in.t.Helper()
	in.eventually(fmt.Sprintf("monopod has at most %d MiB of memory", bytes>>20), func() error {
		now := status(in.t, in.cmd.Process.Pid, "VmRSS")
		if now > bytes {
			return fmt.Errorf("%d KiB", now>>10)
		}
		in.t.Logf("monopod has %d KiB of memory", now>>10)
		return nil
	})
}

// TestIdle: while 30 pods run and nothing happens, monopod and its shims write nothing to disk, change no file, and need little memory,
// even with every feature configured.
func TestIdle(t *testing.T) {
	in := newInstance(t)
	in.agent = "monopod-client" // the same without the race detector
	var all []string
	for n := range 30 {
		pod := sleeper(fmt.Sprintf("idle-%d", n), ":")
		if n >= 5 { // that takes a while
			pod = strings.Replace(pod, "spec:\n", "spec:\n  hostNetwork: true\n", 1)
		}
		all = append(all, pod)
	}
	in.put("all", strings.Join(all, "---\n"))
	in.start()
	in.allReady(len(all))
	in.costsNothing(len(all), idleFor)
	var fs unix.Statfs_t
	if err := unix.Statfs(in.dir, &fs); err != nil {
		t.Fatal(err)
	}
	if written := agentCost(in).Agent.WrittenBytes; fs.Type != unix.TMPFS_MAGIC && written < 1<<20 {
		t.Errorf("it counts what is written: %d bytes since its start", written)
	}
	untouched := in.untouched("idle-0", "idle-29")
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	asked := in.configureEverything()
	in.start()
	in.allReady(len(all))
	asked()
	in.costsNothing(len(all), idleFor/2) // what is done now and then is done ten times as often
	untouched("everything is configured")
}

// allReady waits until there are n pods, and all are ready.
func (in *instance) allReady(n int) {
	in.t.Helper()
	in.eventually("all pods are ready", func() error {
		pods, err := in.podList()
		ready := 0
		for _, p := range pods {
			if isReady(p) {
				ready++
			}
		}
		if err == nil && ready != n {
			err = fmt.Errorf("%d are", ready)
		}
		return err
	})
}

// configureEverything adds every possible feature to the configuration. The returned function checks that they are active.
func (in *instance) configureEverything() (look func()) {
	in.t.Helper()
	all, err := testbed.NewEverything(in.dir, func() int32 { return ports.Take(in.t) })
	if err != nil {
		in.t.Fatal(err)
	}
	often := []string{"nodeStatusUpdateFrequency: 1s", "evictionCheckFrequency: 1s", "fileCheckFrequency: 2s", "agentCPUBudget: 1500m"}
	in.write(in.config, in.read("config.yaml")+strings.Join(append(all.Lines, often...), "\n")+"\n")
	return func() {
		in.t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		for url, want := range map[string]string{
			fmt.Sprintf("http://127.0.0.1:%d/healthz", all.Health):  "200 ok",
			fmt.Sprintf("http://127.0.0.1:%d/pods", all.Open):       `200 .*"name":"idle-29-e2e"`,
			fmt.Sprintf("https://127.0.0.1:%d/metrics", all.Served): "200 .*kubelet_running_pods 30",
		} {
			in.eventually(url+" answers", func() error { return answers(client, url, want) })
		}
		for _, want := range []string{"InputUnreachable .* http://.*/pods ", "InputUnreachable .* API server, node e2e "} {
			in.eventually("events tell what does not answer: "+want, func() error {
				out, err := in.run("events")
				if err == nil && !regexp.MustCompile(want).MatchString(out) {
					err = errors.New(out)
				}
				return err
			})
		}
	}
}

// answers sends a request with a token, and matches the answer against a regular expression.
func answers(client *http.Client, url, want string) error {
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+testbed.Token)
	r, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if text := fmt.Sprint(r.StatusCode, " ", string(body)); err == nil && !regexp.MustCompile("(?s)^"+want).MatchString(text) {
		err = fmt.Errorf("it is %.300s", text)
	}
	return err
}

// costsNothing waits until monopod with n pods is idle, and then for some time during which nothing may be written.
func (in *instance) costsNothing(n int, while time.Duration) {
	t := in.t
	t.Helper()
	dirs := []string{filepath.Join(in.dir, "root"), in.state}
	files, cost := changes(t, dirs...), agentCost(in)
	for deadline := time.Now().Add(patience); ; {
		letTimePass(calmFor)
		before := cost
		cost = agentCost(in)
		now := changes(t, dirs...)
		if maps.Equal(files, now) && before.Agent.WrittenBytes == cost.Agent.WrittenBytes && before.Shims.WrittenBytes == cost.Shims.WrittenBytes {
			break
		}
		if files = now; time.Now().After(deadline) {
			t.Fatal("it does not come to rest")
		}
	}
	letTimePass(while)
	now := agentCost(in)
	if cost.Shims.Processes != n || now.Shims.Processes != n {
		t.Fatalf("there are %d shims, then %d", cost.Shims.Processes, now.Shims.Processes)
	}
	if cost.Agent.WrittenBytes != now.Agent.WrittenBytes || cost.Shims.WrittenBytes != now.Shims.WrittenBytes {
		t.Errorf("monopod has written %d bytes, its shims %d", now.Agent.WrittenBytes-cost.Agent.WrittenBytes, now.Shims.WrittenBytes-cost.Shims.WrittenBytes)
	}
	after := changes(t, dirs...)
	for path := range after {
		if files[path] != after[path] {
			t.Errorf("%s has changed: %s, before %s", path, after[path], files[path])
		}
	}
	if len(after) != len(files) || len(after) < 1000 {
		t.Errorf("there are %d files, %d before", len(after), len(files))
	}
	if t.Failed() {
		out, _ := in.run("events")
		t.Log("events:\n" + out[max(0, len(out)-2000):])
	}
	in.hasAtMost(podsMemory)
	woken := now.Agent.WakeUps - cost.Agent.WakeUps
	if woken == 0 { // how many there are depends on what else the machine does
		t.Errorf("no wake-ups are counted in %v", while)
	}
	t.Logf("%d wake-ups of monopod, %d of its shims in %v", woken, now.Shims.WakeUps-cost.Shims.WakeUps, while)
}
