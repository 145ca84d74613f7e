//go:build e2e

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"monopod/e2e/testimages"
)

// suiteIP creates a bridge if the kernel has no dummy links: the suite only tests whether a container may create links at all.
const suiteIP = `#!/bin/sh
case "$*" in
"link add "*" type dummy") /bin/ip "$@" 2>/dev/null || exec /bin/ip link add "$3" type bridge ;;
*) exec /bin/ip "$@" ;;
esac
`

// suiteImages pushes replacements for the images of the suite to a registry, and configures it as the mirror of registry.k8s.io. The
// programs of the suite are original; programs of Alpine are replaced by busybox and e2e/suite.
func suiteImages(t *testing.T, dir, hosts string) {
	t.Helper()
	registry := testimages.Registry(t)
	program := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tool := program("suite")
	tools := []testimages.File{{Path: "usr", Mode: 0o755}, {Path: "usr/bin", Mode: 0o755}, {Path: "usr/local", Mode: 0o755}, {Path: "usr/local/bin", Mode: 0o755}}
	for _, name := range []string{"usr/local/bin/curl", "usr/local/bin/nc", "bin/sh"} {
		tools = append(tools, testimages.File{Path: name, Content: tool, Mode: 0o755})
	}
	tools = append(tools, testimages.File{Path: "bin/bash", Content: []byte("#!/bin/sh\nexec /bin/sh \"$@\"\n"), Mode: 0o755})
	tools = append(tools, testimages.File{Path: "usr/local/bin/ip", Content: []byte(suiteIP), Mode: 0o755})
	config := func(c *v1.Config) {
		c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	}
	plain := testimages.Busybox(t, config, tools...)
	pause := testimages.FromFiles(t, []testimages.File{{Path: "pause", Content: tool, Mode: 0o755}}, func(c *v1.Config) {
		c.Entrypoint, c.Cmd, c.User = []string{"/pause"}, nil, "65535:65535"
	})
	users := []testimages.File{
		{Path: "etc/passwd", Content: []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/home/app:/bin/sh\n"), Mode: 0o644},
		{Path: "etc/group", Content: []byte("root:x:0:root\nnobody:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"), Mode: 0o644},
		{Path: "uploads", Mode: 0o777},
		{Path: "agnhost", Content: program("agnhost"), Mode: 0o755},
		{Path: "agnhost-2", Link: "agnhost", Mode: 0o777},
	}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		users = append(users, testimages.File{Path: name, Content: program(name), Mode: 0o644})
	}
	more := append(append(append([]testimages.File{}, tools...), users...), registryFiles(t, "var/registry/pause", "testing", pause)...)
	agnhost := testimages.Busybox(t, func(c *v1.Config) {
		config(c)
		c.Entrypoint, c.Cmd = []string{"/agnhost"}, []string{"pause"}
	}, more...)
	nginx := reconfigured(t, agnhost, func(c *v1.Config) { c.Cmd = []string{"netexec", "--http-port=80", "--udp-port=-1"} })
	nnp := append(append([]testimages.File{}, tools...), testimages.File{Path: "usr/local/bin/nnp", Content: program("nnp"), Mode: 0o755 | fs.ModeSetuid})
	const suite = "/e2e-test-images/"
	for ref, img := range map[string]v1.Image{
		suite + "agnhost:2.66.1": agnhost, suite + "agnhost:2.55": agnhost, suite + "busybox:1.37.0-2": plain, "/pause:3.10.2": pause,
		suite + "nginx:1.27.0-2": nginx, suite + "nginx:1.28.0-2": nginx, suite + "ipc-utils:1.4": plain, suite + "glibc-dns-testing:2.1.1": plain,
		suite + "nonewprivs:1.4": testimages.Busybox(t, func(c *v1.Config) { config(c); c.Cmd = []string{"nnp"} }, nnp...),
		suite + "nonroot:1.5":    reconfigured(t, plain, func(c *v1.Config) { c.User = "1234" }),
	} {
		testimages.Push(t, registry+ref, img)
	}
	to := filepath.Join(hosts, "registry.k8s.io")
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "hosts.toml"), []byte("server = \"http://"+registry+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reconfigured returns an image with another configuration.
func reconfigured(t *testing.T, img v1.Image, edit func(*v1.Config)) v1.Image {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := file.Config.DeepCopy()
	edit(c)
	if img, err = mutate.Config(img, *c); err != nil {
		t.Fatal(err)
	}
	return img
}

// registryFiles are the files of an image for the fake registry of agnhost.
func registryFiles(t *testing.T, dir, tag string, img v1.Image) []testimages.File {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var files []testimages.File
	for _, d := range []string{"var/registry", dir, dir + "/manifests", dir + "/manifests/sha256", dir + "/blobs", dir + "/blobs/sha256"} {
		files = append(files, testimages.File{Path: d, Mode: 0o755})
	}
	put := func(kind string, content []byte) string {
		sum := sha256.Sum256(content)
		digest := hex.EncodeToString(sum[:])
		of := dir + "/" + kind + "/sha256/" + digest[:2]
		files = append(files, testimages.File{Path: of, Mode: 0o755}, testimages.File{Path: of + "/" + digest, Mode: 0o755},
			testimages.File{Path: of + "/" + digest + "/data", Content: content, Mode: 0o644})
		return "sha256:" + digest
	}
	manifest, err := img.RawManifest()
	must(err)
	files = append(files, testimages.File{Path: dir + "/manifests/" + tag, Content: []byte(put("manifests", manifest)), Mode: 0o644})
	config, err := img.RawConfigFile()
	must(err)
	put("blobs", config)
	layers, err := img.Layers()
	must(err)
	for _, l := range layers {
		r, err := l.Compressed()
		must(err)
		content, err := io.ReadAll(r)
		must(err)
		put("blobs", content)
	}
	return files
}
