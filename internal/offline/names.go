package offline

import (
	"bytes"
	"regexp"
	"strconv"

	"monopod/node/why"
)

// What a document says of itself, found without understanding it: it may be broken anywhere.
var (
	between    = regexp.MustCompile(`(?m)^---`)
	kindWord   = regexp.MustCompile(`(?m)(?:^|[\s{,])"?kind"?\s*:\s*["']?([A-Za-z]+)`)
	metadata   = regexp.MustCompile(`(?m)(?:^|[\s{,])"?metadata"?\s*:`)
	specWord   = regexp.MustCompile(`(?m)(?:^|[\s{,}])"?(?:spec|data|stringData)"?\s*:`)
	nameWord   = regexp.MustCompile(`[\s{,]"?name"?\s*:\s*["']?([A-Za-z0-9][A-Za-z0-9.-]*)`)
	namespaces = regexp.MustCompile(`[\s{,]"?namespace"?\s*:\s*["']?([A-Za-z0-9-]+)`)
)

// Names finds what the documents of a file are called that could not be accepted. It guesses: what it finds is for telling
// people where to look.
func Names(file string, data []byte) []why.Object {
	var all []why.Object
	from := 0
	ends := append(between.FindAllIndex(data, -1), []int{len(data), len(data)})
	for _, end := range ends {
		if o, ok := nameIn(data[from:end[0]]); ok {
			o.Where = file + ":" + strconv.Itoa(1+bytes.Count(data[:from], []byte("\n"))+leading(data[from:end[0]]))
			all = append(all, o)
		}
		from = end[0]
	}
	return all
}

// leading counts the lines of a document before its first one that says something.
func leading(doc []byte) int {
	n := 0
	for line := range bytes.Lines(doc) {
		text := bytes.TrimSpace(line)
		if len(text) > 0 && text[0] != '#' && !bytes.HasPrefix(text, []byte("---")) {
			return n
		}
		n++
	}
	return 0
}

func nameIn(doc []byte) (why.Object, bool) {
	at := metadata.FindIndex(doc)
	if at == nil {
		return why.Object{}, false
	}
	o := why.Object{Kind: "Pod", Namespace: "default"}
	if m := kindWord.FindSubmatch(doc); m != nil {
		o.Kind = string(m[1])
	}
	head := doc[at[1]-1:]
	if end := specWord.FindIndex(head); end != nil {
		head = head[:end[0]]
	}
	m := nameWord.FindSubmatch(head)
	if m == nil {
		return why.Object{}, false
	}
	o.Name = string(m[1])
	if m := namespaces.FindSubmatch(head); m != nil {
		o.Namespace = string(m[1])
	}
	return o, true
}
