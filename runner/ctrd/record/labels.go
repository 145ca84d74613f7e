package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

// Labels of our records. The io.kubernetes names are the kubelet's, so that tools find pods where they expect them.
const (
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodName       = "io.kubernetes.pod.name"
	labelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	// LabelOwner holds the root directory of the instance that made the record: what carries another value, or
	// none, is not ours and is never touched.
	LabelOwner       = "monopod.dev/owner"
	LabelSource      = "monopod.dev/source"
	labelSandboxHash = "monopod.dev/sandbox-hash"
	LabelState       = "monopod.dev/state"
	LabelBootID      = "monopod.dev/boot-id"
	LabelKeepFiles   = "monopod.dev/keep-files"
	LabelRemade      = "monopod.dev/remade"
	LabelBorn        = "monopod.dev/born"
	LabelFailed      = "monopod.dev/failed"
	LabelFailedAt    = "monopod.dev/failed-at"
	LabelFailedMsg   = "monopod.dev/failed-message"
	LabelFailedCause = "monopod.dev/failed-cause"
	labelEvictions   = "monopod.dev/evictions"
	labelFirstID     = "monopod.dev/first-id"
	LabelQOSClass    = "monopod.dev/qos-class"
	labelHandler     = "monopod.dev/runtime-handler"
	labelOverhead    = "monopod.dev/overhead"

	// LabelCgroup is the cgroup of the pod, labelResourcesHash tells what it, or the container's, was set to.
	LabelCgroup        = "monopod.dev/cgroup"
	LabelResourcesHash = "monopod.dev/resources-hash"
	labelResources     = "monopod.dev/resources"
	labelCPUs          = "monopod.dev/cpus"

	LabelSandbox    = "monopod.dev/sandbox"
	labelHash       = "monopod.dev/hash"
	labelGeneration = "monopod.dev/generation"
	labelImageID    = "monopod.dev/image-id"
	// LabelImage, and labelVolumeImage with the name of a volume, hold digests of images. Their names make containerd keep
	// what they refer to for as long as the container is there, whatever becomes of the tag.
	LabelImage        = "containerd.io/gc.ref.content.image"
	LabelVolumeImage  = "containerd.io/gc.ref.content.volume."
	labelRestartCount = "monopod.dev/restart-count"
	labelBackOff      = "monopod.dev/back-off"
	labelLogPath      = "monopod.dev/log-path"
	labelDevices      = "monopod.dev/devices"
	labelStopSignal   = "monopod.dev/stop-signal"
	labelMessagePath  = "monopod.dev/termination-message"
	labelMessageLimit = "monopod.dev/termination-message-limit"
	labelMessageLogs  = "monopod.dev/termination-message-from-logs"
	labelStartedAt    = "monopod.dev/started-at"
	labelStopSentAt   = "monopod.dev/stop-sent-at"
	labelStoppingAt   = "monopod.dev/stopping-at"
	labelStopCause    = "monopod.dev/stop-cause"
	labelPostStart    = "monopod.dev/post-start"
	labelRound        = "monopod.dev/round"
	labelHealth       = "monopod.dev/health"
	labelLast         = "monopod.dev/last"
	labelLastMessage  = "monopod.dev/last-message"
	labelExit         = "monopod.dev/exit"
	labelExitMessage  = "monopod.dev/exit-message"
)

// maxLabel is containerd's limit for key and value together.
const maxLabel = 4096

// SandboxState is the life of a sandbox record: active until RemoveSandbox, then removing until nothing of it is left.
type SandboxState string

const (
	Active   SandboxState = "active"
	Removing SandboxState = "removing"
)

// ContainerLabels is what the labels of a container record say.
type ContainerLabels struct {
	Owner     string
	Key       manifests.Key
	UID       string
	Name      string
	SandboxID string
	// Generation counts the containers of the pod: which is the newer of two does not depend on the clock.
	Generation int
	Hash       string
	// ResourcesHash and Resources are what its cgroup has.
	ResourcesHash string
	Resources     *corev1.ResourceRequirements
	// Cgroup is that of its pod.
	Cgroup string
	// CPUs are the processors it has for itself; empty: it shares.
	CPUs    string
	ImageID string
	// Image is the digest of the image's manifest or index, VolumeImages those of images that are mounted, by volume.
	Image        string
	VolumeImages map[string]string
	RestartCount int
	BackOff      time.Duration
	// BootID is the boot that it was created in.
	BootID  string
	Last    *runner.Termination
	LogPath string
	// Devices are those that the container holds for itself alone, by their CDI names.
	Devices []string
	// StopSignal is the image's STOPSIGNAL, empty for SIGTERM.
	StopSignal string
	// MessagePath is the host file with the termination message, MessageLimit its share of the pod's 12 KiB.
	MessagePath  string
	MessageLimit int
	// MessageFromLogs is terminationMessagePolicy FallbackToLogsOnError.
	MessageFromLogs bool
	// StartedAt is written just before the start: its presence says that a start was attempted.
	StartedAt  time.Time
	StopSentAt time.Time
	StoppingAt time.Time
	StopCause  runner.StopCause
	PostStart  runner.PostStart
	// Round is given by CreateContainer; 0 is left out.
	Round int
	// Health is zero until probes have said something.
	Health runner.Health
	Exit   *runner.Termination
}

// Encode returns the labels. Values that are not set are left out.
func (l *ContainerLabels) Encode() map[string]string {
	m := map[string]string{
		LabelOwner:         l.Owner,
		LabelPodNamespace:  l.Key.Namespace,
		LabelPodName:       l.Key.Name,
		labelPodUID:        l.UID,
		LabelContainerName: l.Name,
		LabelSandbox:       l.SandboxID,
		labelGeneration:    strconv.Itoa(l.Generation),
		labelHash:          l.Hash,
		LabelResourcesHash: l.ResourcesHash,
		labelResources:     encodeResources(l.Resources),
		LabelCgroup:        l.Cgroup,
		labelCPUs:          l.CPUs,
		labelImageID:       l.ImageID,
		LabelImage:         l.Image,
		labelRestartCount:  strconv.Itoa(l.RestartCount),
		labelBackOff:       l.BackOff.String(),
		LabelBootID:        l.BootID,
		labelLogPath:       l.LogPath,
		labelDevices:       strings.Join(l.Devices, ","),
		labelStopSignal:    l.StopSignal,
		labelMessagePath:   l.MessagePath,
		labelMessageLimit:  strconv.Itoa(l.MessageLimit),
		labelStartedAt:     encodeTime(l.StartedAt),
		labelStopSentAt:    encodeTime(l.StopSentAt),
		labelStoppingAt:    encodeTime(l.StoppingAt),
		labelStopCause:     string(l.StopCause),
		labelPostStart:     string(l.PostStart),
	}
	for volume, digest := range l.VolumeImages {
		m[LabelVolumeImage+volume] = digest
	}
	if l.Round > 0 {
		m[labelRound] = strconv.Itoa(l.Round)
	}
	if l.MessageFromLogs {
		m[labelMessageLogs] = "true"
	}
	if l.Health != (runner.Health{}) {
		b, _ := json.Marshal(l.Health) // two flags and a time always encode
		m[labelHealth] = string(b)
	}
	putTermination(m, labelLast, labelLastMessage, l.Last)
	putTermination(m, labelExit, labelExitMessage, l.Exit)
	for k, v := range m {
		if v == "" {
			delete(m, k)
		}
	}
	return m
}

// decodeContainerLabels is the inverse of encode.
func decodeContainerLabels(m map[string]string) (*ContainerLabels, error) {
	l := &ContainerLabels{
		Owner:           m[LabelOwner],
		Key:             manifests.Key{Namespace: m[LabelPodNamespace], Name: m[LabelPodName]},
		UID:             m[labelPodUID],
		Name:            m[LabelContainerName],
		SandboxID:       m[LabelSandbox],
		Hash:            m[labelHash],
		ResourcesHash:   m[LabelResourcesHash],
		Cgroup:          m[LabelCgroup],
		CPUs:            m[labelCPUs],
		ImageID:         m[labelImageID],
		Image:           m[LabelImage],
		VolumeImages:    VolumeImages(m),
		BootID:          m[LabelBootID],
		LogPath:         m[labelLogPath],
		StopSignal:      m[labelStopSignal],
		MessagePath:     m[labelMessagePath],
		MessageFromLogs: m[labelMessageLogs] == "true",
		StopCause:       runner.StopCause(m[labelStopCause]),
		PostStart:       runner.PostStart(m[labelPostStart]),
	}
	if m[labelDevices] != "" {
		l.Devices = strings.Split(m[labelDevices], ",")
	}
	d := decoder{m: m}
	l.Generation = d.number(labelGeneration)
	l.RestartCount = d.number(labelRestartCount)
	l.MessageLimit = d.number(labelMessageLimit)
	l.Round = d.number(labelRound)
	l.BackOff = d.duration(labelBackOff)
	l.Resources = d.resources(labelResources)
	l.StartedAt = d.time(labelStartedAt)
	l.StopSentAt = d.time(labelStopSentAt)
	l.StoppingAt = d.time(labelStoppingAt)
	if text := m[labelHealth]; text != "" {
		d.fail(labelHealth, json.Unmarshal([]byte(text), &l.Health))
	}
	l.Last = d.termination(labelLast, labelLastMessage)
	l.Exit = d.termination(labelExit, labelExitMessage)
	return l, errors.Join(d.errs...)
}

// VolumeImages returns the digests of mounted images by volume.
func VolumeImages(m map[string]string) map[string]string {
	var images map[string]string
	for key, digest := range m {
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

// decoder collects the errors of several labels.
type decoder struct {
	m    map[string]string
	errs []error
}

func (d *decoder) fail(key string, err error) {
	if err != nil {
		d.errs = append(d.errs, fmt.Errorf("label %s: %w", key, err))
	}
}

func (d *decoder) number(key string) int {
	if d.m[key] == "" {
		return 0
	}
	n, err := strconv.Atoi(d.m[key])
	d.fail(key, err)
	return n
}

func (d *decoder) duration(key string) time.Duration {
	if d.m[key] == "" {
		return 0
	}
	v, err := time.ParseDuration(d.m[key])
	d.fail(key, err)
	return v
}

func (d *decoder) time(key string) time.Time {
	if d.m[key] == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, d.m[key])
	d.fail(key, err)
	return t
}

func (d *decoder) termination(key, messageKey string) *runner.Termination {
	if d.m[key] == "" {
		return nil
	}
	t := &runner.Termination{}
	d.fail(key, json.Unmarshal([]byte(d.m[key]), t))
	t.Message = d.m[messageKey]
	return t
}

func (d *decoder) resources(key string) *corev1.ResourceRequirements {
	if d.m[key] == "" {
		return nil
	}
	r := &corev1.ResourceRequirements{}
	d.fail(key, json.Unmarshal([]byte(d.m[key]), r))
	return r
}

func encodeResources(r *corev1.ResourceRequirements) string {
	if r == nil {
		return ""
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // quantities always encode
	}
	return string(b)
}

func encodeTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// putTermination writes a termination as two labels, because a full message leaves no room for anything else.
func putTermination(m map[string]string, key, messageKey string, t *runner.Termination) {
	if t == nil {
		return
	}
	bare := *t
	bare.Message = ""
	b, err := json.Marshal(bare)
	if err != nil {
		panic(err) // a struct of strings, ints and times always encodes
	}
	m[key] = string(b)
	m[messageKey] = fitLabel(messageKey, t.Message)
}

// fitLabel makes a value storable: valid UTF-8, and cut at the front so that the end, where the reason of a
// crash stands, is kept.
func fitLabel(key, value string) string {
	return LastBytes(strings.ToValidUTF8(value, "\uFFFD"), maxLabel-len(key))
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

// SandboxLabels is what the labels of a sandbox record say.
type SandboxLabels struct {
	Owner  string
	Key    manifests.Key
	UID    string
	Source string
	Hash   string
	State  SandboxState
	BootID string
	// Born is the time since boot when it was made.
	Born time.Duration
	// KeepFiles: what belongs to the uid is left to another sandbox.
	KeepFiles bool
	// Remade: the next sandbox of the pod is about to be made. Until it is there this record stays.
	Remade bool
	// Failed, FailedMessage and FailedAt say that the pod has failed as a whole.
	Failed        string
	FailedMessage string
	FailedCause   cause.Cause
	FailedAt      time.Time
	// Evictions is how often in a row the pod was evicted before.
	Evictions int
	// FirstID is the first of the machine's user and group ids that the pod's user namespace has; 0: it has none.
	FirstID uint32
	// Cgroup is the pod's, in those of QOSClass, set to what ResourcesHash is of.
	Cgroup        string
	QOSClass      corev1.PodQOSClass
	ResourcesHash string
	// Handler and Overhead are those of the RuntimeClass when the sandbox was made, which its containers stay with.
	Handler  string
	Overhead corev1.ResourceList
}

// Encode returns the labels. Values that are not set are left out.
func (l *SandboxLabels) Encode() map[string]string {
	m := map[string]string{
		LabelOwner:        l.Owner,
		LabelPodNamespace: l.Key.Namespace,
		LabelPodName:      l.Key.Name,
		labelPodUID:       l.UID,
		LabelSource:       l.Source,
		labelSandboxHash:  l.Hash,
		LabelState:        string(l.State),
		LabelBootID:       l.BootID,
		LabelBorn:         l.Born.String(),
	}
	if l.KeepFiles {
		m[LabelKeepFiles] = "true"
	}
	if l.Remade {
		m[LabelRemade] = "true"
	}
	if l.Failed != "" {
		m[LabelFailed], m[LabelFailedAt], m[LabelFailedMsg] = l.Failed, encodeTime(l.FailedAt), l.FailedMessage
		if b, err := json.Marshal(l.FailedCause); err == nil && l.FailedCause != (cause.Cause{}) {
			m[LabelFailedCause] = string(b)
		}
	}
	if l.Evictions > 0 {
		m[labelEvictions] = strconv.Itoa(l.Evictions)
	}
	if l.FirstID > 0 {
		m[labelFirstID] = strconv.FormatUint(uint64(l.FirstID), 10)
	}
	if l.Cgroup != "" {
		m[LabelCgroup], m[LabelQOSClass], m[LabelResourcesHash] = l.Cgroup, string(l.QOSClass), l.ResourcesHash
	}
	if l.Handler != "" {
		m[labelHandler] = l.Handler
	}
	if len(l.Overhead) > 0 {
		m[labelOverhead] = encodeResources(&corev1.ResourceRequirements{Requests: l.Overhead})
	}
	return m
}

// failedCause is the zero Cause where none was recorded, or it cannot be read: the reason and the message remain.
func failedCause(m map[string]string) (c cause.Cause) {
	if err := json.Unmarshal([]byte(m[LabelFailedCause]), &c); err != nil {
		return cause.Cause{}
	}
	return c
}

// DecodeSandboxLabels is the inverse of Encode.
func DecodeSandboxLabels(m map[string]string) *SandboxLabels {
	first, _ := strconv.ParseUint(m[labelFirstID], 10, 32)
	evictions, _ := strconv.Atoi(m[labelEvictions])
	d := decoder{m: m} // times that cannot be read are unknown, which is no reason to lose the sandbox
	l := &SandboxLabels{
		Born:     d.duration(LabelBorn),
		Failed:   m[LabelFailed],
		FailedAt: d.time(LabelFailedAt),

		FailedMessage: m[LabelFailedMsg],
		FailedCause:   failedCause(m),
		Evictions:     evictions,

		Owner:   m[LabelOwner],
		Key:     manifests.Key{Namespace: m[LabelPodNamespace], Name: m[LabelPodName]},
		UID:     m[labelPodUID],
		Source:  m[LabelSource],
		Hash:    m[labelSandboxHash],
		State:   SandboxState(m[LabelState]),
		BootID:  m[LabelBootID],
		FirstID: uint32(first),

		KeepFiles: m[LabelKeepFiles] == "true", Remade: m[LabelRemade] == "true",
		Cgroup: m[LabelCgroup], QOSClass: corev1.PodQOSClass(m[LabelQOSClass]), ResourcesHash: m[LabelResourcesHash],
		Handler: m[labelHandler],
	}
	if o := d.resources(labelOverhead); o != nil {
		l.Overhead = o.Requests
	}
	return l
}

// LabelGCRoot keeps containerd's garbage collection from a snapshot whose container record does not exist yet.
const LabelGCRoot = "containerd.io/gc.root"
