//go:build e2e

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// damageOf is a way to damage a database of bbolt.
type damageOf struct {
	name string
	// small is set if the small variant contains it; sure is set if the damaged part is in use.
	small, sure bool
	do          func(path string) error
}

// pagesOf changes all pages that look like those of a kind, by the flags in their header.
func pagesOf(flags uint16, change func(page []byte)) func(path string) error {
	return func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for at := 2 * 4096; at+4096 <= len(data); at += 4096 {
			page := data[at : at+4096]
			if binary.NativeEndian.Uint64(page) == uint64(at/4096) && binary.NativeEndian.Uint16(page[8:]) == flags {
				change(page)
			}
		}
		return os.WriteFile(path, data, 0o600)
	}
}

// onePage fills a page with garbage.
func onePage(n int) func(path string) error {
	return func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		b := make([]byte, 4096)
		rnd := rand.New(rand.NewPCG(uint64(n), 4))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		_, err = f.WriteAt(b, int64(n)%(info.Size()/4096)*4096)
		return errors.Join(err, f.Close())
	}
}

func databaseDamages() []damageOf {
	zero := func(b []byte) { clear(b) }
	garbage := func(b []byte) { copy(b, strings.Repeat("garbage ", len(b)/8)) }
	all := []damageOf{
		{"leaves of zeros", true, true, pagesOf(2, zero)},
		{"leaves of garbage", false, true, pagesOf(2, garbage)},
		{"branches of garbage", false, false, pagesOf(1, garbage)},
		{"a free list of garbage", false, false, pagesOf(16, garbage)},
		// Without a copy of the last transaction, bbolt continues from the previous one by itself and reports nothing.
		{"the first meta page", false, false, onePage(0)},
		{"the second meta page", false, false, onePage(1)},
		{"truncated", false, true, func(p string) error { return os.Truncate(p, 3*4096+100) }},
		{"empty", true, true, func(p string) error { return os.Truncate(p, 0) }},
		{"zeros", false, true, func(p string) error { return os.WriteFile(p, make([]byte, 64<<10), 0o600) }},
		{"deleted", true, true, os.Remove},
		{"a directory", false, true, func(p string) error { return errors.Join(os.Remove(p), os.MkdirAll(filepath.Join(p, "in"), 0o755)) }},
	}
	for n := range 20 {
		all = append(all, damageOf{fmt.Sprintf("page %d", n+2), false, false, onePage(n + 2)})
	}
	return all
}

// TestAttackDatabases kills the agent, damages a database of its containerd, and starts the agent again: running pods are unaffected;
// starts, edits and removals work. Nothing is left at the end.
func TestAttackDatabases(t *testing.T) {
	in := newInstance(t, "fileCheckFrequency: 1s")
	in.put("host", strings.Replace(sleeper("host", ":"), "spec:\n", "spec:\n  hostNetwork: true\n", 1))
	in.put("net", sleeper("net", "echo kept >/data/file", "    volumeMounts: [{name: data, mountPath: /data}]\n  volumes: [{name: data, emptyDir: {}}]"))
	in.put("pids", strings.Replace(sleeper("pids", ":"), "spec:\n", "spec:\n  shareProcessNamespace: true\n", 1))
	in.start()
	names := []string{"host", "net", "pids"}
	for _, n := range names {
		in.ready(n)
	}
	check := in.untouched(names...)
	databases := map[string][]string{
		"meta.db":     {filepath.Join(in.dir, "root/containerd/io.containerd.metadata.v1.bolt/meta.db")},
		"metadata.db": {filepath.Join(in.dir, "root/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db")},
	}
	databases["both"] = append(append([]string(nil), databases["meta.db"]...), databases["metadata.db"]...)
	round := 0
	for _, d := range databaseDamages() {
		for which, paths := range databases {
			if !large() && (!d.small || which != "both" && d.name != "leaves of zeros") {
				continue
			}
			round++
			when := fmt.Sprintf("round %d, %s: %s:", round, which, d.name)
			extra := fmt.Sprintf("new-%d", round%3)
			in.put(extra, sleeper(extra, ":")) // it may be on its way when the agent is killed
			if round%2 == 0 {
				in.ready(extra)
			}
			in.kill9()
			for _, p := range paths {
				if err := d.do(p); err != nil {
					t.Fatal(when, err)
				}
			}
			before := strings.Count(in.log.String(), "could not be used")
			in.start()
			check(when)
			if got := strings.Count(in.log.String(), "could not be used") - before; d.sure && got != len(paths) {
				t.Errorf("%s %d databases were reported as damaged", when, got)
			}
			in.ready(extra)
			in.drop(extra)
			in.gone(extra)
		}
	}
	if out, err := in.run("events"); err != nil || !strings.Contains(out, "DatabaseRestored") {
		t.Errorf("no event tells of it: %v\n%s", err, out)
	}
	in.put("net", strings.Replace(in.read("manifests/net.yaml"), "app: net", "app: edited", 1))
	p := in.pod("net", "has the new label", func(p corev1.Pod) bool { return p.Labels["app"] == "edited" })
	if out, err := in.run("exec", p.Name, "--", "cat", "/data/file"); err != nil || out != "kept\n" {
		t.Errorf("the data of the pod: %q, %v", out, err)
	}
}
