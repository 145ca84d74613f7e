package logs

import (
	"bytes"
	"io"
)

const blockSize = 64 << 10

// tailStart returns the offset of the last lines that c still needs in a CRI log of the given size; found is false if there are fewer. The
// pieces of a long line count as one. The file is read backwards, in blocks.
//
// If a long line of one stream is interleaved with lines of the other, its first pieces may be omitted.
func tailStart(f io.ReaderAt, size int64, c *tailCounter) (start int64, found bool, err error) {
	var head []byte // the beginning of the block after, up to its first newline
	for end := size; end > 0; {
		start := max(0, end-blockSize)
		block := make([]byte, end-start, int(end-start)+len(head))
		if _, err := f.ReadAt(block, start); err != nil && err != io.EOF {
			return 0, false, err
		}
		block = append(block, head...)
		for {
			i := bytes.LastIndexByte(block[:max(0, len(block)-1)], '\n')
			if i < 0 {
				break
			}
			if c.add(block[i+1:]) {
				return start + int64(len(block)), true, nil
			}
			block = block[:i+1]
		}
		head, end = block, start
	}
	if c.add(head) {
		return int64(len(head)), true, nil
	}
	return 0, false, nil
}

// tailCounter counts lines backwards over the files of a log.
type tailCounter struct {
	want, have int
	// seen means that a later entry of the stream was found, so that a P entry is not the last one.
	seen [2]bool
}

// add counts the line before those added so far and reports whether it is one too many.
func (c *tailCounter) add(line []byte) bool {
	line, whole := bytes.CutSuffix(line, []byte{'\n'})
	e, ok := parseEntry(line)
	if !ok || !whole {
		return false
	}
	stream := streamOf(e)
	// The last piece of a line ends it. So does a P at the end of the stream, which ended without a newline.
	if !e.partial || !c.seen[stream] {
		c.have++
	}
	c.seen[stream] = true
	return c.have > c.want
}

func streamOf(e entry) int {
	if e.stream == stderrName {
		return 1
	}
	return 0
}
