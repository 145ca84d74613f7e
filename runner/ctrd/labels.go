package ctrd

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
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodName       = "io.kubernetes.pod.name"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	// labelOwner holds the root directory of the instance that made the record: what carries another value, or
	// none, is not ours and is never touched.
	labelOwner       = "monopod.dev/owner"
	labelSource      = "monopod.dev/source"
	labelSandboxHash = "monopod.dev/sandbox-hash"
	labelState       = "monopod.dev/state"
	labelBootID      = "monopod.dev/boot-id"
	labelKeepFiles   = "monopod.dev/keep-files"
	labelRemade      = "monopod.dev/remade"
	labelBorn        = "monopod.dev/born"
	labelFailed      = "monopod.dev/failed"
	labelFailedAt    = "monopod.dev/failed-at"
	labelFailedMsg   = "monopod.dev/failed-message"
	labelFailedCause = "monopod.dev/failed-cause"
	labelEvictions   = "monopod.dev/evictions"
	labelFirstID     = "monopod.dev/first-id"
	labelQOSClass    = "monopod.dev/qos-class"
	labelHandler     = "monopod.dev/runtime-handler"
	labelOverhead    = "monopod.dev/overhead"

	// labelCgroup is the cgroup of the pod, labelResourcesHash tells what it, or the container's, was set to.
	labelCgroup        = "monopod.dev/cgroup"
	labelResourcesHash = "monopod.dev/resources-hash"
	labelResources     = "monopod.dev/resources"
	labelCPUs          = "monopod.dev/cpus"

	labelSandbox    = "monopod.dev/sandbox"
	labelHash       = "monopod.dev/hash"
	labelGeneration = "monopod.dev/generation"
	labelImageID    = "monopod.dev/image-id"
	// labelImage, and labelVolumeImage with the name of a volume, hold digests of images. Their names make containerd keep
	// what they refer to for as long as the container is there, whatever becomes of the tag.
	labelImage        = "containerd.io/gc.ref.content.image"
	labelVolumeImage  = "containerd.io/gc.ref.content.volume."
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

// sandboxState is the life of a sandbox record: active until RemoveSandbox, then removing until nothing of it is left.
type sandboxState string

const (
	sandboxActive   sandboxState = "active"
	sandboxRemoving sandboxState = "removing"
)

// containerLabels is what the labels of a container record say.
type containerLabels struct {
	Owner     string
	Key       manifests.Key
	UID       string
	Name      string
	SandboxID string
	// Generation counts the containers of the pod: which is the newer of two does not depend on the clock.
	Generation int
	Hash       string
	// ResourcesHash and Resources are what its cgroup has; empty for containers of releases that had it in Hash.
	ResourcesHash string
	Resources     *corev1.ResourceRequirements
	// Cgroup is that of its pod; empty in the layout without classes.
	Cgroup string
	// CPUs are the processors it has for itself; empty: it shares.
	CPUs    string
	ImageID string
	// Image is the digest of the image's manifest or index, VolumeImages those of images that are mounted, by volume.
	Image        string
	VolumeImages map[string]string
	RestartCount int
	BackOff      time.Duration
	// BootID is the boot that it was made in; empty for containers of releases that did not note it.
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

// encode returns the labels. Values that are not set are left out.
func (l *containerLabels) encode() map[string]string {
	m := map[string]string{
		labelOwner:         l.Owner,
		labelPodNamespace:  l.Key.Namespace,
		labelPodName:       l.Key.Name,
		labelPodUID:        l.UID,
		labelContainerName: l.Name,
		labelSandbox:       l.SandboxID,
		labelGeneration:    strconv.Itoa(l.Generation),
		labelHash:          l.Hash,
		labelResourcesHash: l.ResourcesHash,
		labelResources:     encodeResources(l.Resources),
		labelCgroup:        l.Cgroup,
		labelCPUs:          l.CPUs,
		labelImageID:       l.ImageID,
		labelImage:         l.Image,
		labelRestartCount:  strconv.Itoa(l.RestartCount),
		labelBackOff:       l.BackOff.String(),
		labelBootID:        l.BootID,
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
		m[labelVolumeImage+volume] = digest
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
func decodeContainerLabels(m map[string]string) (*containerLabels, error) {
	l := &containerLabels{
		Owner:           m[labelOwner],
		Key:             manifests.Key{Namespace: m[labelPodNamespace], Name: m[labelPodName]},
		UID:             m[labelPodUID],
		Name:            m[labelContainerName],
		SandboxID:       m[labelSandbox],
		Hash:            m[labelHash],
		ResourcesHash:   m[labelResourcesHash],
		Cgroup:          m[labelCgroup],
		CPUs:            m[labelCPUs],
		ImageID:         m[labelImageID],
		Image:           m[labelImage],
		VolumeImages:    volumeImages(m),
		BootID:          m[labelBootID],
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

func volumeImages(m map[string]string) map[string]string {
	var images map[string]string
	for key, digest := range m {
		volume, ok := strings.CutPrefix(key, labelVolumeImage)
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
	return lastBytes(strings.ToValidUTF8(value, "\uFFFD"), maxLabel-len(key))
}

// lastBytes returns the last n bytes of s or, to stay on a rune boundary, a few less.
func lastBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for s != "" && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// sandboxLabels is what the labels of a sandbox record say.
type sandboxLabels struct {
	Owner  string
	Key    manifests.Key
	UID    string
	Source string
	Hash   string
	State  sandboxState
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
	// Cgroup is the pod's, in those of QOSClass, set to what ResourcesHash is of; all empty in the layout without classes.
	Cgroup        string
	QOSClass      corev1.PodQOSClass
	ResourcesHash string
	// Handler and Overhead are those of the RuntimeClass when the sandbox was made, which its containers stay with.
	Handler  string
	Overhead corev1.ResourceList
}

func (l *sandboxLabels) encode() map[string]string {
	m := map[string]string{
		labelOwner:        l.Owner,
		labelPodNamespace: l.Key.Namespace,
		labelPodName:      l.Key.Name,
		labelPodUID:       l.UID,
		labelSource:       l.Source,
		labelSandboxHash:  l.Hash,
		labelState:        string(l.State),
		labelBootID:       l.BootID,
		labelBorn:         l.Born.String(),
	}
	if l.KeepFiles {
		m[labelKeepFiles] = "true"
	}
	if l.Remade {
		m[labelRemade] = "true"
	}
	if l.Failed != "" {
		m[labelFailed], m[labelFailedAt], m[labelFailedMsg] = l.Failed, encodeTime(l.FailedAt), l.FailedMessage
		if b, err := json.Marshal(l.FailedCause); err == nil && l.FailedCause != (cause.Cause{}) {
			m[labelFailedCause] = string(b)
		}
	}
	if l.Evictions > 0 {
		m[labelEvictions] = strconv.Itoa(l.Evictions)
	}
	if l.FirstID > 0 {
		m[labelFirstID] = strconv.FormatUint(uint64(l.FirstID), 10)
	}
	if l.Cgroup != "" {
		m[labelCgroup], m[labelQOSClass], m[labelResourcesHash] = l.Cgroup, string(l.QOSClass), l.ResourcesHash
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
	if err := json.Unmarshal([]byte(m[labelFailedCause]), &c); err != nil {
		return cause.Cause{}
	}
	return c
}

func decodeSandboxLabels(m map[string]string) *sandboxLabels {
	first, _ := strconv.ParseUint(m[labelFirstID], 10, 32)
	evictions, _ := strconv.Atoi(m[labelEvictions])
	d := decoder{m: m} // times that cannot be read are unknown, which is no reason to lose the sandbox
	l := &sandboxLabels{
		Born:     d.duration(labelBorn),
		Failed:   m[labelFailed],
		FailedAt: d.time(labelFailedAt),

		FailedMessage: m[labelFailedMsg],
		FailedCause:   failedCause(m),
		Evictions:     evictions,

		Owner:   m[labelOwner],
		Key:     manifests.Key{Namespace: m[labelPodNamespace], Name: m[labelPodName]},
		UID:     m[labelPodUID],
		Source:  m[labelSource],
		Hash:    m[labelSandboxHash],
		State:   sandboxState(m[labelState]),
		BootID:  m[labelBootID],
		FirstID: uint32(first),

		KeepFiles: m[labelKeepFiles] == "true", Remade: m[labelRemade] == "true",
		Cgroup: m[labelCgroup], QOSClass: corev1.PodQOSClass(m[labelQOSClass]), ResourcesHash: m[labelResourcesHash],
		Handler: m[labelHandler],
	}
	if o := d.resources(labelOverhead); o != nil {
		l.Overhead = o.Requests
	}
	return l
}
