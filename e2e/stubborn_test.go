//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
)

func TestCreatesWhileContainerdIsKilledAgainAndAgainConverge(t *testing.T) {
	d := startContainerd(t)
	in := newInstance(t, "containerRuntimeEndpoint: unix://"+d.socket)
	in.shims = d.state()
	in.start()
	before := in.census()
	const pods = 10
	for i := range pods {
		in.put(fmt.Sprintf("p%d", i), sleeper(fmt.Sprintf("p%d", i), fmt.Sprintf(": only-one=%d.", i)))
		if i%3 == 1 {
			time.Sleep(time.Duration(20*i) * time.Millisecond) // in the middle of creating something
			d.kill9()
			d.start()
		}
	}
	for i := range pods {
		in.ready(fmt.Sprintf("p%d", i))
	}
	in.eventually("each container runs once", func() error {
		n := map[string]int{}
		for _, p := range in.table() {
			if _, mark, ok := strings.Cut(p.cmdline, "only-one="); ok {
				n[strings.SplitN(mark, ".", 2)[0]]++
			}
		}
		for i := range pods {
			if n[fmt.Sprint(i)] != 1 {
				return fmt.Errorf("processes: %v", n)
			}
		}
		return nil
	})
	for i := range pods {
		in.drop(fmt.Sprintf("p%d", i))
		if i == pods/2 {
			d.kill9()
			d.start()
		}
	}
	for i := range pods {
		in.gone(fmt.Sprintf("p%d", i))
	}
	in.sameCensus(before)
}

// TestAKilledContainerdLeavesNothingBehind kills containerd while the shim of a container runs but containerd has no address of it yet, and
// while runc is working.
func TestAKilledContainerdLeavesNothingBehind(t *testing.T) {
	for _, c := range []struct{ name, program, setting, word, half string }{
		{"a shim", "containerd-shim-monopod-v2", "shimPath", "start", `$real "$@"`},
		{"a part of a container", "runc", "ociRuntime", "create", `for id; do :; done; $real "$@" & until [ -e $state/runc/monopod/$id ]; do :; done; kill -9 $!`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startContainerd(t)
			dir := t.TempDir()
			wrapper, made := filepath.Join(dir, c.program), filepath.Join(dir, "made")
			in := newInstance(t, "containerRuntimeEndpoint: unix://"+d.socket, c.setting+": "+wrapper)
			in.shims = d.state()
			t.Cleanup(d.revive)
			// The wrapper does its work; the first time it may do only a part of it and never answers.
			in.write(wrapper, fmt.Sprintf(`#!/bin/sh
real=%s made=%s state=%s
case " $* " in *" %s "*) [ -e $made ] || { %s; echo $$ >$made; exec sleep 1000; } ;; esac
exec $real "$@"
`, filepath.Join(in.bin, c.program), made, in.state, c.word, c.half))
			if err := os.Chmod(wrapper, 0o755); err != nil {
				t.Fatal(err)
			}
			in.start()
			before := in.census()
			in.put("p", sleeper("p", ": only-one."))
			var pid int
			in.eventually("it is being made", func() error {
				b, err := os.ReadFile(made)
				if err == nil {
					pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
				}
				return err
			})
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			d.kill9()
			d.start()
			in.ready("p")
			in.drop("p")
			in.gone("p")
			in.sameCensus(before)
		})
	}
}

// TestAStartGoesOnWhenTheAgentIsKilled: the agent is killed after runc has started the process, but before runc has reported it. The
// process is neither lost nor started a second time.
func TestAStartGoesOnWhenTheAgentIsKilled(t *testing.T) {
	dir := t.TempDir()
	wrapper, started := filepath.Join(dir, "runc"), filepath.Join(dir, "started")
	in := newInstance(t, "ociRuntime: "+wrapper)
	in.write(wrapper, fmt.Sprintf(`#!/bin/sh
case " $* " in *" start "*) [ -e %[2]s ] || { %[1]s "$@"; : >%[2]s; sleep 2; exit; } ;; esac
exec %[1]s "$@"
`, filepath.Join(in.bin, "runc"), started))
	if err := os.Chmod(wrapper, 0o755); err != nil {
		t.Fatal(err)
	}
	in.start()
	in.put("p", sleeper("p", ": only-one."))
	in.eventually("it is being started", func() error { _, err := os.Stat(started); return err })
	before := in.shells("only-one.")
	in.kill9()
	in.start()
	p := in.ready("p")
	if after := in.shells("only-one."); len(before) != 1 || !slices.Equal(before, after) || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("processes %v, then %v, want the same one: %s", before, after, brief(p))
	}
}

func TestAPodCanBeRemovedWhileItsRegistryDoesNotAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	in := newInstance(t)
	in.start()
	before := in.census()
	hangs := strings.Replace(sleeper("hangs", "echo"), image, l.Addr().String()+"/none:1", 1)
	in.put("hangs", hangs)
	in.put("fine", sleeper("fine", "echo"))
	fine := in.ready("fine")
	in.put("fine", strings.Replace(sleeper("fine", "echo"), image, l.Addr().String()+"/none:1", 1))
	in.pod("hangs", "waits for its image", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodPending })
	began := time.Now()
	in.drop("hangs")
	in.gone("hangs")
	if took := time.Since(began); took > 30*time.Second { // after a minute the pull ends by itself
		t.Errorf("the removal took %v", took)
	}
	if p := in.ready("fine"); containerID(p, "c") != containerID(fine, "c") {
		t.Error("the pod that waits for a new image was stopped")
	}
	in.drop("fine")
	in.gone("fine")
	in.sameCensus(before)
}

func TestANewArchiveUnderTheSameNameIsForTheNextStart(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("p", sleeper("p", "echo version=$VERSION"))
	before := in.ready("p")
	archive := filepath.Join(in.dir, "images", "busybox.tar")
	next := filepath.Join(in.dir, "next.tar")
	testimages.ArchiveOf(t, next, testimages.Busybox(t, func(c *v1.Config) { c.Env = append(c.Env, "VERSION=2") }), image)
	if err := os.Rename(next, archive); err != nil {
		t.Fatal(err)
	}
	in.eventually("the archive was imported again", func() error {
		if n := strings.Count(in.log.String(), "preload archive imported"); n < 2 {
			return fmt.Errorf("%d imports", n)
		}
		return nil
	})
	if p := in.ready("p"); containerID(p, "c") != containerID(before, "c") {
		t.Error("a new image restarted the pod by itself")
	}
	in.put("q", sleeper("q", "echo version=$VERSION"))
	in.ready("q")
	in.eventually("the new pod has the new image", func() error {
		out, err := in.run("logs", "q")
		if err == nil && out != "version=2\n" {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
}

func TestThreeHundredRewritesEndInTheLastOneRunningOnce(t *testing.T) {
	in := newInstance(t)
	in.start()
	const last = 300
	for i := range last {
		in.put("p", sleeper("p", fmt.Sprintf(": generation=%d.", i+1)))
	}
	in.eventually("only the last one runs", func() error {
		var found []string
		for _, p := range in.table() {
			if strings.Contains(p.cmdline, "generation=") {
				found = append(found, p.cmdline)
			}
		}
		if len(found) != 1 || !strings.Contains(found[0], fmt.Sprintf("generation=%d.", last)) {
			return fmt.Errorf("these run: %v", found)
		}
		return nil
	})
	in.ready("p")
}
