package tracing

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

type (
	traceID [16]byte
	spanID  [8]byte
)

// span is one, as it is queued.
type span struct {
	trace      traceID
	id, parent spanID
	name       string
	began      time.Time
	over       time.Time
	attributes []attribute
	// err says why it failed; empty: it did not.
	err string
}

// attribute is a text, or a number where that is empty.
type attribute struct {
	key, text string
	number    int64
}

// resource is who traces.
type resource struct{ node, version string }

func (r resource) attributes() []attribute {
	return []attribute{{key: "service.name", text: "monopod"}, {key: "service.version", text: r.version}, {key: "k8s.node.name", text: r.node}, {key: "host.name", text: r.node}}
}

// encode makes an opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest. The numbers are those of the fields in
// opentelemetry-proto 1.x.
func encode(r resource, spans []span) []byte {
	return message(nil, 1, func(b []byte) []byte { // resource_spans
		b = message(b, 1, func(b []byte) []byte { return attributes(b, 1, r.attributes()) }) // resource
		return message(b, 2, func(b []byte) []byte {                                         // scope_spans
			b = message(b, 1, func(b []byte) []byte { return text(b, 1, "monopod/node/tracing") }) // scope
			for i := range spans {
				b = message(b, 2, spans[i].append)
			}
			return b
		})
	})
}

func (s *span) append(b []byte) []byte {
	b = bytes(b, 1, s.trace[:])
	b = bytes(b, 2, s.id[:])
	if s.parent != (spanID{}) {
		b = bytes(b, 4, s.parent[:])
	}
	b = text(b, 5, s.name)
	b = protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), 1) // SPAN_KIND_INTERNAL
	b = fixed(b, 7, s.began)
	b = fixed(b, 8, s.over)
	b = attributes(b, 9, s.attributes)
	if s.err == "" {
		return b
	}
	return message(b, 15, func(b []byte) []byte { // status
		b = text(b, 2, s.err)
		return protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 2) // STATUS_CODE_ERROR
	})
}

func attributes(b []byte, field protowire.Number, all []attribute) []byte {
	for _, a := range all {
		if a.text == "" && a.number == 0 {
			continue
		}
		b = message(b, field, func(b []byte) []byte {
			b = text(b, 1, a.key)
			return message(b, 2, func(b []byte) []byte {
				if a.text != "" {
					return text(b, 1, a.text)
				}
				return protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(a.number))
			})
		})
	}
	return b
}

func message(b []byte, field protowire.Number, content func([]byte) []byte) []byte {
	return bytes(b, field, content(nil))
}

func bytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func fixed(b []byte, field protowire.Number, t time.Time) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), uint64(t.UnixNano()))
}
