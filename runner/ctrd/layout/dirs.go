// Package layout names every file and directory of an instance. It must not create, read or remove any.
package layout

import (
	"path/filepath"
	"strings"

	"monopod/manifests"
	"monopod/runner/ctrd/logs"
)

// Dirs names the directories and files of one instance.
type Dirs struct {
	// Root is the root directory, state the state directory, podLogs where log files go, containerLogs the directory of
	// the links to them; empty: there are none.
	Root, State, PodLogs, ContainerLogs string
}

// VolumesDir is where the directories of claims are.
func (r Dirs) VolumesDir() string { return filepath.Join(r.Root, "volumes") }

// PinDir has one file for each claim of a pod.
func (r Dirs) PinDir(uid string) string { return filepath.Join(r.PodDir(uid), "claims") }

// EphemeralDir has the directories of the generic ephemeral volumes of a pod.
func (r Dirs) EphemeralDir(uid string) string {
	return filepath.Join(r.PodDir(uid), "volumes", "monopod.dev~ephemeral")
}

// EmptyDir is where an emptyDir volume of a pod is.
func (r Dirs) EmptyDir(uid, volume string) string {
	return filepath.Join(r.PodDir(uid), "volumes", "kubernetes.io~empty-dir", volume)
}

// EndpointPath turns unix:///path into the path.
func EndpointPath(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// MessageCopy is where the shim copies the message of a container.
func (r Dirs) MessageCopy(uid, id string) string {
	return filepath.Join(r.PodDir(uid), "messages", id)
}

// SubPathDir holds the bind mounts of a container that is being created.
func (r Dirs) SubPathDir(container string) string { return r.Path("subpaths", container) }

// ImageVolumeDir holds the directories that a container has for the VOLUMEs of its image.
func (r Dirs) ImageVolumeDir(uid, container string) string {
	return filepath.Join(r.PodDir(uid), "image-volumes", container)
}

// PauseDir is the bundle of a sandbox's process 1.
func (r Dirs) PauseDir(id string) string { return r.Path("pause", id) }

// PauseRoot is the state directory of the OCI runtime for those.
func (r Dirs) PauseRoot() string { return r.Path("pause-runc") }

// Path returns a path below the state directory.
func (r Dirs) Path(elem ...string) string {
	return filepath.Join(append([]string{r.State}, elem...)...)
}

// PodsDir has one directory for each pod.
func (r Dirs) PodsDir() string { return filepath.Join(r.Root, "pods") }

// PodDir is where a pod's files and volumes are.
func (r Dirs) PodDir(uid string) string { return filepath.Join(r.PodsDir(), uid) }

// ExitFile is the record that a shim writes when its container ends.
func (r Dirs) ExitFile(id string) string { return r.Path("exits", id+".json") }

// NsDir has the pinned namespaces of a sandbox.
func (r Dirs) NsDir(id string) string { return r.Path("ns", id) }

// ShmDir is the /dev/shm of a sandbox.
func (r Dirs) ShmDir(id string) string { return r.Path("shm", id) }

// HandlersDir holds the directories of the runtimes of RuntimeClasses.
func (r Dirs) HandlersDir() string { return r.Path("handlers") }

// PodFilesDir has the files of a pod that all its containers see.
func (r Dirs) PodFilesDir(uid string) string { return filepath.Join(r.PodDir(uid), "files") }

// SecretsDir is a tmpfs.
func (r Dirs) SecretsDir() string { return r.Path("secrets") }

// FilesDir has the volumes of a pod with the content of objects.
func (r Dirs) FilesDir(uid string) string { return filepath.Join(r.SecretsDir(), "volumes", uid) }

// HiddenFile has the environment and arguments of a container whose variables come from Secrets.
func (r Dirs) HiddenFile(id string) string {
	return filepath.Join(r.SecretsDir(), "process", id)
}

// ContentDir is where the embedded containerd keeps the blobs of images.
func (r Dirs) ContentDir() string {
	return filepath.Join(r.Root, "containerd", "io.containerd.content.v1.content")
}

// PodLogDir is where the log files of a pod are.
func (r Dirs) PodLogDir(key manifests.Key, uid string) string {
	return logs.PodDir(r.PodLogs, key.Namespace, key.Name, uid)
}

// ContainerLogDir has the log files of a container.
func (r Dirs) ContainerLogDir(key manifests.Key, uid, container string) string {
	return filepath.Join(r.PodLogDir(key, uid), container)
}
