package testimages

import (
	"archive/tar"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func needBusybox(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(busybox); err != nil {
		t.Skip("no ", busybox)
	}
}

func TestBusyboxHasAShellAndUsers(t *testing.T) {
	needBusybox(t)
	rc := mutate.Extract(Busybox(t, nil))
	defer func() { _ = rc.Close() }()
	r := tar.NewReader(rc)
	seen := map[string]string{}
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		check(t, err)
		seen[strings.TrimSuffix(h.Name, "/")] = h.Linkname
	}
	if seen["bin/sh"] != "busybox" {
		t.Errorf("/bin/sh -> %q", seen["bin/sh"])
	}
	for _, p := range []string{"bin/busybox", "etc/passwd", "etc/group", "tmp"} {
		if _, ok := seen[p]; !ok {
			t.Errorf("no %s", p)
		}
	}
}

func TestArchiveHasAllNamesInOneIndex(t *testing.T) {
	needBusybox(t)
	path := filepath.Join(t.TempDir(), "a.tar")
	Archive(t, path, "example.com/a:1", "b")
	f, err := os.Open(path)
	check(t, err)
	defer func() { _ = f.Close() }()
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if err == io.EOF {
			t.Fatal("no index.json")
		}
		check(t, err)
		if h.Name == "index.json" {
			break
		}
	}
	b, err := io.ReadAll(r)
	check(t, err)
	for _, n := range []string{`"example.com/a:1"`, `"b"`} {
		if !strings.Contains(string(b), n) {
			t.Errorf("index.json lacks %s: %s", n, b)
		}
	}
}

func TestDockerArchiveCanBeReadBack(t *testing.T) {
	needBusybox(t)
	path := filepath.Join(t.TempDir(), "a.tar")
	DockerArchive(t, path, "example.com/a:1")
	tag, err := name.NewTag("example.com/a:1")
	check(t, err)
	_, err = tarball.ImageFromPath(path, &tag)
	check(t, err)
}

func TestAuthRegistryAsksForThePassword(t *testing.T) {
	needBusybox(t)
	ref := AuthRegistry(t, "u", "p") + "/a:1"
	img := Busybox(t, nil)
	r, err := name.ParseReference(ref, name.Insecure)
	check(t, err)
	if err := remote.Write(r, img); err == nil {
		t.Fatal("pushed without a password")
	}
	Push(t, ref, img, remote.WithAuth(&authn.Basic{Username: "u", Password: "p"}))
}
