package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/typeurl/v2"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// Labels of our records: who owns them, which pod they belong to, and what containerd's garbage collection must keep. They are written
// once. The io.kubernetes names are the kubelet's, so that tools find pods where they expect them.
const (
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodName       = "io.kubernetes.pod.name"
	labelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	// LabelOwner holds the root directory of the instance that created the record. Records with another value, or without
	// one, are never touched.
	LabelOwner   = "monopod.dev/owner"
	LabelSandbox = "monopod.dev/sandbox"

	// LabelImage, and LabelVolumeImage followed by the name of a volume, hold digests of images. Because of the prefix of these keys
	// containerd keeps the content for as long as the container exists, whatever becomes of the tag.
	LabelImage       = "containerd.io/gc.ref.content.image"
	LabelVolumeImage = "containerd.io/gc.ref.content.volume."

	// LabelGCRoot keeps containerd's garbage collection from a snapshot whose container record does not exist yet.
	LabelGCRoot = "containerd.io/gc.root"
)

// SandboxState is the life of a sandbox record: active until RemoveSandbox, then removing until nothing of it is left.
type SandboxState string

// The states of a sandbox record.
const (
	Active   SandboxState = "active"
	Removing SandboxState = "removing"
)

// ContainerMeta is what monopod records about a container. Fields without a JSON name are in the labels.
type ContainerMeta struct {
	Owner     string        `json:"-"`
	Key       manifests.Key `json:"-"`
	UID       string        `json:"-"`
	Name      string        `json:"-"`
	SandboxID string        `json:"-"`
	// Image is the digest of the image's manifest or index, VolumeImages those of images that are mounted, by volume.
	Image        string            `json:"-"`
	VolumeImages map[string]string `json:"-"`

	// Generation counts the containers of the pod: it orders them without the clock.
	Generation int    `json:"generation"`
	Hash       string `json:"hash"`
	// ResourcesHash and Resources are what its cgroup was set to.
	ResourcesHash string                       `json:"resourcesHash,omitempty"`
	Resources     *corev1.ResourceRequirements `json:"resources,omitempty"`
	// PodResources are those of its pod as a whole at that time; nil if a version set it that did not record them.
	PodResources *corev1.ResourceRequirements `json:"podResources,omitempty"`
	// Cgroup is that of its pod.
	Cgroup string `json:"cgroup,omitempty"`
	// CPUs are the processors that it has for itself; empty: it shares.
	CPUs         string        `json:"cpus,omitempty"`
	ImageID      string        `json:"imageID,omitempty"`
	RestartCount int           `json:"restartCount,omitempty"`
	BackOff      time.Duration `json:"backOff,omitempty"`
	// BootID is the boot that it was created in.
	BootID  string              `json:"bootID,omitempty"`
	Last    *runner.Termination `json:"last,omitempty"`
	LogPath string              `json:"logPath,omitempty"`
	// Devices are those that only this container may use, by their CDI names.
	Devices []string `json:"devices,omitempty"`
	// StopSignal is the image's STOPSIGNAL, empty for SIGTERM.
	StopSignal string `json:"stopSignal,omitempty"`
	// MessagePath is the host file with the termination message, MessageLimit its share of the pod's 12 KiB.
	MessagePath  string `json:"messagePath,omitempty"`
	MessageLimit int    `json:"messageLimit,omitempty"`
	// MessageFromLogs is terminationMessagePolicy FallbackToLogsOnError.
	MessageFromLogs bool `json:"messageFromLogs,omitempty"`
	// StartedAt is written just before the start: it is set if a start was attempted.
	StartedAt  time.Time        `json:"startedAt,omitzero"`
	StopSentAt time.Time        `json:"stopSentAt,omitzero"`
	StoppingAt time.Time        `json:"stoppingAt,omitzero"`
	StopCause  runner.StopCause `json:"stopCause,omitempty"`
	PostStart  runner.PostStart `json:"postStart,omitempty"`
	// Round is given by CreateContainer.
	Round int `json:"round,omitempty"`
	// Health is zero until a probe has succeeded or failed.
	Health runner.Health       `json:"health,omitzero"`
	Exit   *runner.Termination `json:"exit,omitempty"`
}

// SandboxMeta is what monopod records about a sandbox, beside its manifest. Fields without a JSON name are in the labels.
type SandboxMeta struct {
	Owner string        `json:"-"`
	Key   manifests.Key `json:"-"`
	UID   string        `json:"-"`

	Source string       `json:"source"`
	Hash   string       `json:"hash"`
	State  SandboxState `json:"state"`
	BootID string       `json:"bootID"`
	// Born is the time since boot when it was created.
	Born time.Duration `json:"born"`
	// KeepFiles keeps what belongs to the uid for another sandbox.
	KeepFiles bool `json:"keepFiles,omitempty"`
	// Remade keeps this record until the next sandbox of the pod has been created.
	Remade bool `json:"remade,omitempty"`
	// Failed, FailedMessage, FailedCause and FailedAt are set if the pod has failed as a whole.
	Failed        string      `json:"failed,omitempty"`
	FailedMessage string      `json:"failedMessage,omitempty"`
	FailedCause   cause.Cause `json:"failedCause,omitzero"`
	FailedAt      time.Time   `json:"failedAt,omitzero"`
	// Evictions is how often in a row the pod was evicted before.
	Evictions int `json:"evictions,omitempty"`
	// FirstID is the first user and group id of the host in the pod's user namespace; 0: it has none.
	FirstID uint32 `json:"firstID,omitempty"`
	// Cgroup is the pod's cgroup, below that of QOSClass, with the limits that ResourcesHash is of.
	Cgroup        string             `json:"cgroup"`
	QOSClass      corev1.PodQOSClass `json:"qosClass"`
	ResourcesHash string             `json:"resourcesHash"`
	// Resources are what Cgroup was set to; nil if it was last set by a version that did not record it.
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Handler and Overhead are those of the RuntimeClass when the sandbox was created; its containers keep them.
	Handler  string              `json:"handler,omitempty"`
	Overhead corev1.ResourceList `json:"overhead,omitempty"`
}

// Labels returns the labels of a container record.
func (m *ContainerMeta) Labels() map[string]string {
	labels := podLabels(m.Owner, m.Key, m.UID)
	labels[LabelContainerName], labels[LabelSandbox] = m.Name, m.SandboxID
	if m.Image != "" {
		labels[LabelImage] = m.Image
	}
	for volume, digest := range m.VolumeImages {
		labels[LabelVolumeImage+volume] = digest
	}
	return labels
}

// Labels returns the labels of a sandbox record.
func (m *SandboxMeta) Labels() map[string]string { return podLabels(m.Owner, m.Key, m.UID) }

func podLabels(owner string, key manifests.Key, uid string) map[string]string {
	return map[string]string{LabelOwner: owner, LabelPodNamespace: key.Namespace, LabelPodName: key.Name, labelPodUID: uid}
}

func keyOf(labels map[string]string) manifests.Key {
	return manifests.Key{Namespace: labels[LabelPodNamespace], Name: labels[LabelPodName]}
}

// VolumeImages returns the digests of mounted images by volume.
func VolumeImages(labels map[string]string) map[string]string {
	var images map[string]string
	for key, digest := range labels {
		volume, ok := strings.CutPrefix(key, LabelVolumeImage)
		if !ok {
			continue
		}
		if images == nil {
			images = map[string]string{}
		}
		images[volume] = digest
	}
	return images
}

// decodeContainer reads a record of the container store. With an error the record has what could be read.
func decodeContainer(c containers.Container) (*Container, error) {
	r := &Container{ID: c.ID, CreatedAt: c.CreatedAt, Image: c.Image}
	err := fromAny(c.Extensions, ExtContainer, &r.Meta)
	m := &r.Meta
	m.Owner, m.Key, m.UID = c.Labels[LabelOwner], keyOf(c.Labels), c.Labels[labelPodUID]
	m.Name, m.SandboxID = c.Labels[LabelContainerName], c.Labels[LabelSandbox]
	m.Image, m.VolumeImages = c.Labels[LabelImage], VolumeImages(c.Labels)
	if err != nil {
		err = fmt.Errorf("container %s: %w", c.ID, err)
	}
	return r, err
}

// decodeSandbox reads a record of the sandbox store. With an error the record has what could be read.
func decodeSandbox(sb sandbox.Sandbox) (*Sandbox, error) {
	r := &Sandbox{ID: sb.ID, CreatedAt: sb.CreatedAt, Pod: &manifests.Pod{Object: &corev1.Pod{}}}
	var from written
	meta, err := MetaOf(sb)
	err = errors.Join(
		err,
		fromAny(sb.Extensions, ExtPod, r.Pod.Object),
		fromAny(sb.Extensions, ExtOrigin, &from),
		fromAny(sb.Extensions, ExtNetwork, &r.Network),
	)
	if err != nil {
		err = fmt.Errorf("sandbox %s: %w", sb.ID, err)
	}
	r.Meta, r.Pod.Origin, r.Pod.Images = meta, from.Origin, from.Images
	return r, err
}

// MetaOf reads the labels of a record of the sandbox store and the extension beside them. With an error it returns what could be read.
func MetaOf(sb sandbox.Sandbox) (SandboxMeta, error) {
	var m SandboxMeta
	err := fromAny(sb.Extensions, ExtSandbox, &m)
	m.Owner, m.Key, m.UID = sb.Labels[LabelOwner], keyOf(sb.Labels), sb.Labels[labelPodUID]
	return m, err
}

// Extensions of records, in JSON: labels are limited to 4096 bytes, and containerd parses none of them.
const (
	ExtContainer = "monopod.dev/container"
	ExtSandbox   = "monopod.dev/sandbox"
	ExtPod       = "monopod.dev/pod"
	ExtOrigin    = "monopod.dev/origin"
	ExtNetwork   = "monopod.dev/network"
	ExtEphemeral = "monopod.dev/ephemeral"
)

// jsonAny is a JSON value as containerd stores extensions.
type jsonAny struct {
	url   string
	value []byte
}

// GetTypeUrl implements typeurl.Any.
func (a jsonAny) GetTypeUrl() string { return a.url } //nolint:revive // containerd's name

// GetValue implements typeurl.Any.
func (a jsonAny) GetValue() []byte { return a.value }

func toAny(name string, v any) (typeurl.Any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	return jsonAny{url: name, value: b}, nil
}

func fromAny(m map[string]typeurl.Any, name string, v any) error {
	a, ok := m[name]
	if !ok {
		return fmt.Errorf("extension %s is missing", name)
	}
	if err := json.Unmarshal(a.GetValue(), v); err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	return nil
}

// Extensions returns the extensions of a container record.
func (r *Container) Extensions() (map[string]typeurl.Any, error) {
	meta, err := toAny(ExtContainer, r.Meta)
	return map[string]typeurl.Any{ExtContainer: meta}, err
}

// Extensions returns the extensions of a sandbox record.
func (r *Sandbox) Extensions() (map[string]typeurl.Any, error) {
	all, errs := map[string]typeurl.Any{}, []error(nil)
	for name, v := range map[string]any{
		ExtSandbox: r.Meta, ExtPod: r.Pod.Object, ExtOrigin: written{r.Pod.Origin, r.Pod.Images}, ExtNetwork: r.Network,
	} {
		a, err := toAny(name, v)
		all[name] = a
		errs = append(errs, err)
	}
	if len(r.Ephemeral) > 0 {
		a, err := toAny(ExtEphemeral, r.Ephemeral)
		all[ExtEphemeral] = a
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// decodeEphemeral reads the ephemeral containers of a sandbox; most have none.
func (r *Sandbox) decodeEphemeral(sb sandbox.Sandbox) error {
	if _, ok := sb.Extensions[ExtEphemeral]; !ok {
		return nil
	}
	err := fromAny(sb.Extensions, ExtEphemeral, &r.Ephemeral)
	if err != nil {
		r.Ephemeral = nil
	}
	return err
}

// written is what ExtOrigin holds: what a pod has beside its manifest.
type written struct {
	manifests.Origin
	Images map[string]string `json:"images,omitempty"`
}

// LastBytes returns the last n bytes of s or, to stay on a rune boundary, a few less.
func LastBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
