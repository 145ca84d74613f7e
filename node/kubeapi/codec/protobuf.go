package codec

import (
	"encoding/binary"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// magic is the prefix of every Kubernetes protobuf object. A runtime.Unknown follows, with the kind and the object.
const magic = "k8s\x00"

// Keys of length-delimited protobuf fields: those of runtime.Unknown, and of all lists.
const (
	unknownKind, unknownRaw, unknownEncoding, unknownType = 1<<3 | 2, 2<<3 | 2, 3<<3 | 2, 4<<3 | 2
	listMeta, listItem                                    = 1<<3 | 2, 2<<3 | 2
)

// encodeProtobuf writes an object in its envelope, at once.
func encodeProtobuf(w io.Writer, o runtime.Object) error {
	m, ok := o.(runtime.ProtobufMarshaller)
	if !ok {
		return fmt.Errorf("%T has no protobuf", o)
	}
	size := m.Size()
	start := envelope(o.GetObjectKind().GroupVersionKind(), size)
	pooled := buffers.Get().(*[]byte)
	defer put(pooled)
	b := grow(pooled, len(start)+size+len(envelopeEnd))
	copy(b, start)
	if err := marshal(m, b[len(start):len(start)+size]); err != nil {
		return err
	}
	copy(b[len(start)+size:], envelopeEnd)
	_, err := w.Write(b)
	return err
}

// envelopeEnd are the empty encoding and content type of a runtime.Unknown.
const envelopeEnd = string(rune(unknownEncoding)) + "\x00" + string(rune(unknownType)) + "\x00"

// envelope returns the bytes that precede an object of the given size.
func envelope(gvk schema.GroupVersionKind, size int) []byte {
	t := runtime.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
	b := append([]byte(magic), unknownKind)
	b = binary.AppendUvarint(b, uint64(t.Size()))
	at := len(b)
	b = append(b, make([]byte, t.Size())...)
	_, _ = t.MarshalToSizedBuffer(b[at:]) // cannot fail: the buffer has the right size
	return binary.AppendUvarint(append(b, unknownRaw), uint64(size))
}

// marshal fills b, whose length is the size of m.
func marshal(m runtime.ProtobufMarshaller, b []byte) error {
	n, err := m.MarshalTo(b)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%T changed while it was encoded", m)
	}
	return err
}

// grow returns a buffer of the given size, which replaces the pooled one if that is too small.
func grow(pooled *[]byte, size int) []byte {
	if cap(*pooled) < size {
		*pooled = make([]byte, size)
	}
	return (*pooled)[:size]
}

// encodeProtobufList writes a list: its size is the sum of those of its items, so each item is encoded into the same buffer.
func encodeProtobufList(w io.Writer, gvk schema.GroupVersionKind, m metav1.ListMeta, count int, item func(int) (runtime.ProtobufMarshaller, error)) error {
	sizes := make([]int32, count) // an object has less than 2 GiB
	total := fieldSize(m.Size())
	for i := range count {
		one, err := item(i)
		if err != nil {
			return err
		}
		sizes[i] = int32(one.Size())
		total += fieldSize(int(sizes[i]))
	}
	pooled := buffers.Get().(*[]byte)
	defer put(pooled)
	head := binary.AppendUvarint(append(envelope(gvk, total), listMeta), uint64(m.Size()))
	if _, err := w.Write(head); err != nil {
		return err
	}
	b := grow(pooled, m.Size())
	if err := marshal(&m, b); err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	for i, size := range sizes {
		one, err := item(i)
		if err != nil {
			return err
		}
		b := grow(pooled, 1+binary.MaxVarintLen32+int(size))
		at := 1 + binary.PutUvarint(b[1:], uint64(size))
		b[0] = listItem
		if err := marshal(one, b[at:at+int(size)]); err != nil {
			return err
		}
		if _, err := w.Write(b[:at+int(size)]); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, envelopeEnd)
	return err
}

// fieldSize returns the encoded size of a message of n bytes in a field whose number is below 16.
func fieldSize(n int) int {
	var b [binary.MaxVarintLen64]byte
	return 1 + binary.PutUvarint(b[:], uint64(n)) + n
}
