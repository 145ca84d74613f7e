package layout

import (
	"strings"
	"testing"

	"monopod/manifests"
)

// TestPathsAreDistinct: two files with one path would overwrite each other, and a path outside would not be ours.
func TestPathsAreDistinct(t *testing.T) {
	d := Dirs{Root: "/root", State: "/state", PodLogs: "/logs", ContainerLogs: "/links"}
	key := manifests.Key{Namespace: "default", Name: "web"}
	names := map[string]string{}
	for name, path := range map[string]string{
		"/root/ volumes of claims": d.VolumesDir(), "/root/ pods": d.PodsDir(), "/root/ pod": d.PodDir("u"), "/root/ pins": d.PinDir("u"),
		"/root/ ephemeral": d.EphemeralDir("u"), "/root/ emptyDir": d.EmptyDir("u", "v"), "/root/ other emptyDir": d.EmptyDir("u", "w"),
		"/root/ message": d.MessageCopy("u", "c"), "/root/ image volumes": d.ImageVolumeDir("u", "c"), "/root/ pod files": d.PodFilesDir("u"),
		"/root/ content": d.ContentDir(), "/state/ subPaths": d.SubPathDir("c"), "/state/ pause": d.PauseDir("s"), "/state/ pause runtime": d.PauseRoot(),
		"/state/ exit": d.ExitFile("c"), "/state/ namespaces": d.NsDir("s"), "/state/ shm": d.ShmDir("s"), "/state/ handlers": d.HandlersDir(),
		"/state/ secrets": d.SecretsDir(), "/state/ files": d.FilesDir("u"), "/state/ hidden": d.HiddenFile("c"),
		"/logs/ pod log": d.PodLogDir(key, "u"), "/logs/ container log": d.ContainerLogDir(key, "u", "c"),
	} {
		top, _, _ := strings.Cut(name, " ")
		if !strings.HasPrefix(path, top) {
			t.Errorf("%s: %s", name, path)
		}
		if other, found := names[path]; found {
			t.Errorf("%s and %s are both %s", name, other, path)
		}
		names[path] = name
	}
	if got := EndpointPath("unix:///run/containerd.sock"); got != "/run/containerd.sock" {
		t.Errorf("endpoint %s", got)
	}
}
