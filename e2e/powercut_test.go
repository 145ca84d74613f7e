//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/testimages"
)

// cutMoments are the times of power cuts, after the start and after the end of an image import.
var cutMoments = []struct {
	imported bool
	after    time.Duration
}{
	{true, 0},
	{true, 300 * time.Millisecond},
	{false, 500 * time.Millisecond},
	{true, 2 * time.Second},
	{true, 100 * time.Millisecond},
	{false, 2 * time.Second},
	{true, 8 * time.Second},
	{true, time.Second},
	{false, time.Second},
	{true, 15 * time.Second},
}

// TestPowerCutsLeaveNoBrokenImage cuts the power around an import, repeatedly on one disk: existing pods run after each cut, and so does
// the image of the last import. .ci/vm -powercut runs it again after each cut.
func TestPowerCutsLeaveNoBrokenImage(t *testing.T) {
	cuts, err := strconv.Atoi(os.Getenv("MONOPOD_E2E_CUTS"))
	if err != nil {
		t.Skip("needs a machine whose power is cut: .ci/vm -powercut")
	}
	boot, err := strconv.Atoi(os.Getenv("MONOPOD_E2E_BOOT"))
	if err != nil {
		t.Fatal(err)
	}
	const dir = "/var/lib/rebooted/powercut"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	in := newInstanceIn(t, dir)
	tag := func(n int) string { return fmt.Sprintf("monopod.test/edition:%d", n) }
	name := func(n int) string { return "edition-" + strconv.Itoa(n) }
	in.start()
	for n := range boot {
		if n > 0 { // what it has on the disk, and the archive it came from
			in.logs(fmt.Sprintf("this is edition %d", n), name(n))
			in.ready(name(n))
		}
	}
	if boot > cuts {
		for n := 1; n < boot; n++ {
			fmt.Printf("edition %d runs\n", n)
		}
		if all, err := in.events(); err == nil {
			for _, e := range all {
				if strings.HasPrefix(e.Reason, "Image") {
					fmt.Println(eventText(e))
				}
			}
		}
		in.cleanup()
		return
	}
	m := cutMoments[(boot-1)%len(cutMoments)]
	content := bytes.Repeat(fmt.Appendf(nil, "edition %d, a line of some length\n", boot), 200000)
	img := testimages.Busybox(t, nil, testimages.File{Path: "edition", Content: content, Mode: 0o644},
		testimages.File{Path: "bin/say", Content: fmt.Appendf(nil, "#!/bin/sh\necho this is edition %d; tail -n 1 /edition; exec sleep 100000\n", boot), Mode: 0o755})
	path := filepath.Join(dir, "images", fmt.Sprintf("edition-%d.tar", boot))
	in.put(name(boot), fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  hostNetwork: true
  containers: [{name: c, image: %q, command: [/bin/say]}]
`, name(boot), tag(boot)))
	testimages.ArchiveOf(t, path, img, tag(boot))
	syncFile(t, path) // the archive is somebody else's, and safe
	if m.imported {
		in.eventually("it is imported", func() error {
			for line := range strings.Lines(in.log.String()) {
				if strings.Contains(line, "preload archive imported") && strings.Contains(line, path) {
					return nil
				}
			}
			return errors.New("it is not")
		})
	}
	<-time.After(m.after)
	fmt.Printf("power cut %d\n", boot)
	if err := unix.IoctlSetInt(1, unix.TCSBRK, 1); err != nil { // the serial line has sent it: .ci/vm looks for it
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0o200); err != nil {
		t.Fatal(err)
	}
	select {}
}

func syncFile(t *testing.T, path string) {
	t.Helper()
	for _, p := range []string{path, filepath.Dir(path)} {
		f, err := os.Open(p)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
