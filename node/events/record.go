package events

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/boottime"
)

// Annotations of events: the moment that orders them.
const (
	// AnnotationBootID is the kernel's id of the boot in which it happened.
	AnnotationBootID = "monopod.dev/boot-id"
	// AnnotationSinceBoot is how long after that boot it happened last, like "1h2m3.5s".
	AnnotationSinceBoot = "monopod.dev/since-boot"
)

// maxMessage is the longest message, in bytes, as of an API server.
const maxMessage = 1024

// identity is what makes two events the same: the second raises the count of the first.
type identity struct {
	Boot uint64 `json:"boot"` // how many boots the record has seen
	group
	Message string `json:"message"`
}

// group is what similar events have in common.
type group struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	Field     string `json:"field,omitempty"`
	Type      string `json:"type"`
	Reason    string `json:"reason"`
}

// record is an event as it is kept. The line with the highest Rev of an ID counts.
type record struct {
	ID  uint64 `json:"id"`
	Rev uint64 `json:"rev"`
	identity
	BootID string        `json:"bootID,omitempty"`
	First  time.Duration `json:"first"` // since the boot
	Last   time.Duration `json:"last"`
	Wall   time.Time     `json:"wall"` // at Last
	Count  int32         `json:"count"`
}

// observe is the record of something that happened once and is in no book yet.
func observe(at boottime.Moment, object corev1.ObjectReference, eventType, reason, message string) record {
	return record{
		identity: identity{Message: shortened(message), group: group{
			Kind: object.Kind, Namespace: object.Namespace, Name: object.Name, UID: string(object.UID), Field: object.FieldPath,
			Type: eventType, Reason: reason,
		}},
		BootID: at.Boot, First: at.Since, Last: at.Since, Wall: at.Wall.UTC().Round(time.Millisecond), Count: 1,
	}
}

// shortened cuts a message that is too long.
func shortened(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if len(s) <= maxMessage {
		return s
	}
	const more = " ..."
	cut := maxMessage - len(more)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}

func byOrder(a, b *record) int {
	return cmp.Or(cmp.Compare(a.Boot, b.Boot), cmp.Compare(a.Last, b.Last), cmp.Compare(a.Rev, b.Rev))
}

// size is about how long the record's line is.
func (r *record) size() int64 {
	const rest = 240 // names of fields, numbers, times, checksum
	return int64(rest + len(r.BootID) + len(r.Message) + len(r.Kind) + len(r.Namespace) + len(r.Name) + len(r.UID) + len(r.Field) + len(r.Reason))
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// appendLine appends the record as a line: checksum, space, JSON. A record of a year that JSON has no text for stays in
// memory: it must not keep others off the disk.
func (r *record) appendLine(to []byte) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return to
	}
	text := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	to = fmt.Appendf(to, "%08x ", crc32.Checksum(text, castagnoli()))
	return append(append(to, text...), '\n')
}

var errDamaged = errors.New("damaged line")

// parseLine reads a line without its end.
func parseLine(line []byte) (record, error) {
	var r record
	sum, text, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(sum) != 8 {
		return r, errDamaged
	}
	var want [4]byte
	if _, err := hex.Decode(want[:], sum); err != nil {
		return r, errDamaged
	}
	got := crc32.Checksum(text, castagnoli())
	if [4]byte{byte(got >> 24), byte(got >> 16), byte(got >> 8), byte(got)} != want {
		return r, errDamaged
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return r, nil
}

// convert returns records as API objects. walls is what the wall clock showed at the beginning of each boot, as far as
// is known today: a clock that was set right in the meantime corrects what was recorded before.
func convert(all []record, walls map[uint64]time.Time, node string) []corev1.Event {
	out := make([]corev1.Event, 0, len(all))
	for i := range all {
		out = append(out, all[i].event(walls[all[i].Boot], node))
	}
	return out
}

func (r *record) event(boot time.Time, node string) corev1.Event {
	object := corev1.ObjectReference{
		Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: types.UID(r.UID), FieldPath: r.Field,
	}
	name := r.Name
	switch r.Kind {
	case "Pod", "Node":
		object.APIVersion = "v1"
	default:
		name = strings.ToLower(r.Kind) // a path or URL is no name of an object
	}
	return corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s.%016x", name, r.ID), Namespace: cmp.Or(r.Namespace, metav1.NamespaceDefault),
			ResourceVersion:   fmt.Sprint(r.Rev),
			CreationTimestamp: metav1.NewTime(boot.Add(r.First)),
			Annotations:       map[string]string{AnnotationBootID: r.BootID, AnnotationSinceBoot: r.Last.String()},
		},
		InvolvedObject: object,
		Type:           r.Type, Reason: r.Reason, Message: r.Message, Count: r.Count,
		FirstTimestamp:      metav1.NewTime(boot.Add(r.First)),
		LastTimestamp:       metav1.NewTime(boot.Add(r.Last)),
		Source:              corev1.EventSource{Component: "monopod", Host: node},
		ReportingController: "monopod", ReportingInstance: node,
	}
}

// NodeRef refers to this machine.
func NodeRef(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name}
}

// InputRef refers to a file, directory or URL that manifests are read from.
func InputRef(input string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: KindInput, Name: input}
}

// matches reports whether a record matches the filter.
func (f Filter) matches(r *record) bool {
	return (f.Kind == "" || f.Kind == r.Kind) && (f.Namespace == "" || f.Namespace == r.Namespace) && (f.Name == "" || f.Name == r.Name) && r.Rev > f.After
}

// latest returns the newest line of each event, ordered.
func latest(found []record) []record {
	byID := make(map[uint64]int, len(found))
	var out []record
	for _, r := range found {
		if i, known := byID[r.ID]; !known {
			byID[r.ID] = len(out)
			out = append(out, r)
		} else if r.Rev >= out[i].Rev {
			out[i] = r
		}
	}
	sort.Slice(out, func(i, j int) bool { return byOrder(&out[i], &out[j]) < 0 })
	return out
}

// wallsOf returns what the wall clock showed at the beginning of each boot, as its last record has it.
func wallsOf(ordered []record) map[uint64]time.Time {
	walls := map[uint64]time.Time{}
	for i := range ordered {
		r := &ordered[i]
		walls[r.Boot] = r.Wall.Add(-r.Last)
	}
	return walls
}
