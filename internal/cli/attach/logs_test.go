package attach

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"monopod/internal/daemontest"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/runner/runtimetest"
)

func TestWhatLogsPrints(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartSettled()
	d.WriteLogs()
	d.Golden(t, "settled", nil, [][]string{
		{"logs", "web", "-c", "a"},
		{"logs", "web"},
		{"logs", "web", "b"},
		{"logs", "web", "-c", "a", "--timestamps", "--tail=1"},
		{"logs", "web", "-c", "a", "--limit-bytes=4"},
		{"logs", "web", "-c", "a", "--since-time=2026-01-01T00:00:01.5Z"},
		{"logs", "web", "-c", "a", "--since-time=2100-01-01T00:00:00Z"},
		{"logs", "web", "-c", "a", "--previous"},
		{"logs", "crash", "--previous"},
		{"logs", "crash"},
		{"logs", "-n", "other", "pull"},
		{"logs", "web", "-c", "z"},
		{"logs", "nope"},
		{"logs", "web", "--since=yesterday"},
		{"logs", "web", "--since=1m", "--since-time=2100-01-01T00:00:00Z"},
		{"logs", "web", "--tail=-5"},
		{"logs", "web", "a", "-c", "b"},
	}...)
}

func TestWhatLogsPrintsOfObjects(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.StartWorkloads()
	d.LogLines("web-0", "c", "2026-01-01T00:00:01Z stdout F one\n")
	d.LogLines("web-1", "c", "2026-01-01T00:00:01Z stdout F two\n")
	d.Golden(t, "workloads", nil, [][]string{
		{"logs", "deploy/web"},
		{"logs", "cm/settings"},
		{"logs", "job/once"},
		{"logs", "deploy/nope"},
		{"logs", "-l", "app=web", "--prefix"},
		{"logs", "web-0", "--all-containers"},
		{"logs", "web-0", "--all-containers", "-c", "c"},
		{"port-forward", "svc/web", "81"},
	}...)
}

func TestAFollowedLogEndsWithItsContainer(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", strings.Replace(daemontest.PodYAML("web", runtimetest.ScriptServe), "spec:", "spec:\n  restartPolicy: Never", 1))
	d.Start()
	d.Ready("web")
	path := d.LogLines("web", "a", "2026-01-01T00:00:01Z stdout F one\n")
	p := d.Program()
	out := &daemontest.SyncBuffer{}
	p.Stdout = out
	code := make(chan int, 1)
	go func() { code <- commands(t.Context(), p, []string{"logs", "-f", "web"}) }()
	says := func(want string) {
		t.Helper()
		d.Eventually("the log says "+want, func() error {
			if s := out.String(); s != want {
				return errors.New(s)
			}
			return nil
		})
	}
	says("one\n")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, "2026-01-01T00:00:02Z stdout F two")
	says("one\ntwo\n")
	if err := d.Fake.Exit(manifests.Key{Namespace: "default", Name: "web"}, "a", 0); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-code:
		if c != program.ExitOK {
			t.Errorf("exit code %d", c)
		}
	case <-time.After(daemontest.Patience):
		t.Error("logs -f goes on after the end of the container")
	}
}

func TestLogsOfAllContainersHaveEachInItsOrder(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", daemontest.PodYAML("web", runtimetest.ScriptServe, runtimetest.ScriptServe))
	d.Start()
	d.Ready("web")
	d.LogLines("web", "b", "2026-01-01T00:00:01Z stdout F two\n")
	d.LogLines("web", "a", "2026-01-01T00:00:02Z stdout F one\n")
	d.Says(0, "one\ntwo\n", "", "logs", "web", "--all-containers")
	d.Says(0, "[pod/web/a] one\n[pod/web/b] two\n", "", "logs", "web", "--all-containers", "--prefix")
}
