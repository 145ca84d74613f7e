//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testimages"
)

// TestAttackUserFiles: images whose /etc/passwd and /etc/group have many megabytes, which compress to few kilobytes, do not take the memory
// of the agent. Within the limits their user is found, beyond them the pod waits with the reason.
func TestAttackUserFiles(t *testing.T) {
	const within = 4<<20 - 64<<10
	lines := func(line, last string, size int) []byte {
		return append(bytes.Repeat([]byte(line), size/len(line)), last...)
	}
	const user, group = "z:x:1000:1000::/:/bin/sh\n", "g:x:1001:z\n"
	beyond := 8 << 20
	if large() {
		beyond = 256 << 20
	}
	in := newInstance(t)
	cases := []struct {
		name          string
		passwd, group []byte
		// want is the reason for which the pod waits, empty if it runs.
		want string
	}{
		{"users", lines("a:\n", user, within), []byte(group), ""},
		{"groups", []byte(user), lines("a:\n", group, within), ""},
		{"members", []byte(user), lines("a:x:1:"+strings.Repeat("b,", 500_000)+"\n", group, within), ""},
		{"both", lines("a:\n", user, within), lines("a:\n", group, within), ""},
		{"too-many-users", lines("a:\n", user, beyond), []byte(group), "/etc/passwd: larger than 4 MiB"},
		{"too-many-groups", []byte(user), lines("a:\n", group, beyond), "/etc/group: larger than 4 MiB"},
		{"one-user", lines("a", "\n"+user, beyond), []byte(group), "/etc/passwd: a line is longer than 64 KiB"},
		{"one-group", []byte(user), lines("a", "\n"+group, beyond), "/etc/group: a line is longer than 1024 KiB"},
	}
	for _, c := range cases {
		img := testimages.Busybox(t, func(c *v1.Config) { c.User = "z:g" },
			testimages.File{Path: "etc", Mode: 0o755}, testimages.File{Path: "etc/passwd", Content: c.passwd, Mode: 0o644},
			testimages.File{Path: "etc/group", Content: c.group, Mode: 0o644})
		testimages.ArchiveOf(t, filepath.Join(in.dir, "images", c.name+".tar"), img, "example.com/"+c.name+":1")
	}
	a := attack(in)
	a.survives("images with many users and groups", func() {
		for _, c := range cases {
			a.put(c.name, strings.Replace(sleeper(c.name, ":"), image, "example.com/"+c.name+":1", 1))
		}
		for _, c := range cases {
			if c.want == "" {
				a.ready(c.name)
				if out, err := a.run("exec", c.name, "--", "id", "-u"); err != nil || strings.TrimSpace(out) != "1000" {
					t.Errorf("%s runs as %q, %v", c.name, out, err)
				}
				continue
			}
			a.pod(c.name, "waits: "+c.want, func(p corev1.Pod) bool { return strings.Contains(brief(p), c.want) })
		}
	})
	// Each uid is looked up on its own.
	a.survives("pods with many users of such an image", func() {
		for uid := range 8 {
			name := fmt.Sprint("other", uid)
			a.put(name, strings.Replace(sleeper(name, ":", fmt.Sprintf("    securityContext: {runAsUser: %d}", uid)), image, "example.com/both:1", 1))
		}
		for uid := range 8 {
			a.ready(fmt.Sprint("other", uid))
		}
	})
}
