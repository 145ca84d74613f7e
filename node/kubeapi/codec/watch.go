package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// sendWithin is the deadline for a client to read an event. Slower clients are disconnected, and start a new watch.
const sendWithin = 30 * time.Second

// Watch writes the header of a watch, and returns the Stream for its events.
func (f *Format) Watch(w http.ResponseWriter) *Stream {
	media := f.media
	switch media {
	case mediaProtobuf:
		media += ";stream=watch"
	case mediaYAML:
		media = mediaJSON // Negotiate rejects other types
	}
	events := *f
	events.media, events.pretty = f.media, false
	if f.media == mediaYAML {
		events.media = mediaJSON
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	s := &Stream{format: events, w: w, control: http.NewResponseController(w), columns: true}
	_ = s.control.Flush() // only test recorders cannot flush
	return s
}

// Stream writes the events of a watch. It is for one goroutine.
type Stream struct {
	format  Format
	w       http.ResponseWriter
	control *http.ResponseController
	columns bool // not sent yet
}

// Send writes an event and flushes it. Bookmarks are objects of the kind, errors are a *metav1.Status. An error means that the client is
// gone.
func (s *Stream) Send(event watch.EventType, o runtime.Object) error {
	shaped, err := s.format.transform(o, s.columns)
	if err != nil {
		return err
	}
	pooled := buffers.Get().(*[]byte)
	defer put(pooled)
	b := bytes.NewBuffer((*pooled)[:0])
	if s.format.media == mediaProtobuf {
		err = frame(b, event, shaped)
	} else {
		fmt.Fprintf(b, `{"type":%q,"object":`, string(event))
		err = s.format.encode(b, shaped)
		b.Truncate(len(bytes.TrimRight(b.Bytes(), "\n"))) // an event is one line: some clients split at newlines
		b.WriteString("}\n")
	}
	*pooled = b.Bytes()
	if err != nil {
		return err
	}
	if _, isStatus := shaped.(*metav1.Status); !isStatus {
		s.columns = false
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(sendWithin)) // not all writers support deadlines
	defer func() { _ = s.control.SetWriteDeadline(time.Time{}) }()
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return nil
}

// frame writes a protobuf event after its length. The event has no envelope, but the object in it has one.
func frame(b *bytes.Buffer, event watch.EventType, o runtime.Object) error {
	inner := bytes.Buffer{}
	if err := encodeProtobuf(&inner, o); err != nil {
		return err
	}
	e := metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: inner.Bytes()}}
	size := e.Size()
	out := binary.BigEndian.AppendUint32(b.AvailableBuffer(), uint32(size))
	out = append(out, make([]byte, size)...)
	if _, err := e.MarshalToSizedBuffer(out[4:]); err != nil {
		return err
	}
	b.Write(out)
	return nil
}
