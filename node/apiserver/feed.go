package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Bounds of lists and watches.
const (
	// pageSize is how many objects are asked for at once.
	pageSize = 200
	// maxObjects and maxList bound a whole list: a server that has more for this machine is not right.
	maxObjects = 5000
	maxList    = 32 << 20
	// listTimeout bounds a page, watchTimeout is how long a watch may last.
	listTimeout  = 30 * time.Second
	watchTimeout = 8 * time.Minute
	// burstOfEvents is how many events of a watch are taken in a second.
	burstOfEvents = 500
)

// sink gets the objects of a feed.
type sink[T any] interface {
	// replace gets all objects that there are.
	replace(all []T)
	// update gets one that was added or changed, or with gone has been deleted.
	update(object T, gone bool)
	// lost is called when it is not known any more what there is.
	lost()
}

// feed lists objects of one kind and follows their changes.
type feed[T any] struct {
	client *Client
	path   string
	// selector is a field selector.
	selector string
	sink     sink[T]
}

// errGone says that a watch cannot go on from where it was.
var errGone = errors.New("what changed since is not known any more")

// run follows until ctx ends, or until who we are is the problem.
func (f *feed[T]) run(ctx context.Context, a *Agent) error {
	w := a.waits()
	for ctx.Err() == nil {
		began := time.Now()
		err := f.follow(ctx, func() { w.reset() })
		if ctx.Err() != nil {
			return nil
		}
		if e := fatal(err); e != nil {
			return e
		}
		if time.Since(began) > watchTimeout/2 && (err == nil || errors.Is(err, errGone)) {
			continue // as agreed
		}
		if w.news(err) {
			a.log.Info("the API server does not tell what there is; trying again", "path", f.path, "err", err)
		}
		pause(ctx, w.next(), nil)
	}
	return nil
}

// follow lists, then watches until the server ends it.
func (f *feed[T]) follow(ctx context.Context, good func()) error {
	version, err := f.list(ctx)
	if err != nil {
		f.sink.lost()
		return err
	}
	good()
	for ctx.Err() == nil {
		began := time.Now()
		next, err := f.watch(ctx, version)
		if err != nil || next == version && time.Since(began) < time.Second {
			return err
		}
		version = next
	}
	return nil
}

// list reads page by page. The resource version is where a watch goes on.
func (f *feed[T]) list(ctx context.Context) (string, error) {
	var all []T
	left := int64(maxList)
	for from := ""; ; {
		q := url.Values{"limit": {strconv.Itoa(pageSize)}, "fieldSelector": {f.selector}}
		if from != "" {
			q.Set("continue", from)
		}
		page, err := f.page(ctx, q, &left, func(o T) error {
			if len(all) >= maxObjects {
				return fmt.Errorf("more than %d objects", maxObjects)
			}
			all = append(all, o)
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("list %s: %w", f.path, err)
		}
		if page.Continue == "" || page.Continue == from {
			f.sink.replace(all)
			return page.ResourceVersion, nil
		}
		from = page.Continue
	}
}

// listMeta is what counts of the metadata of a list.
type listMeta struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

func (f *feed[T]) page(ctx context.Context, q url.Values, left *int64, each func(T) error) (listMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := f.client.open(ctx, request{method: http.MethodGet, path: f.path, query: q})
	if err != nil {
		return listMeta{}, err
	}
	defer body.Close()
	b := &bounded{r: body, value: maxAnswer, total: *left}
	meta, err := decodeList(b, each)
	*left = b.total
	return meta, err
}

// bounded is a reader that fails when one value, or all together, are too large.
type bounded struct {
	r     io.Reader
	value int64
	total int64
	// endless says that total does not count.
	endless bool
}

var errTooLarge = errors.New("the answer is too large")

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	most := b.value
	if !b.endless {
		most = min(most, b.total)
	}
	if most <= 0 {
		return 0, errTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), most)])
	b.value -= int64(n)
	b.total -= int64(n)
	return n, err
}

// next allows for another value.
func (b *bounded) next() { b.value = maxAnswer }

// decodeList reads a list object by object: no more than one of them is in memory twice.
func decodeList[T any](b *bounded, each func(T) error) (listMeta, error) {
	var meta listMeta
	dec := json.NewDecoder(b)
	if err := delim(dec, '{'); err != nil {
		return meta, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return meta, err
		}
		switch key {
		case "metadata":
			err = dec.Decode(&meta)
		case "items":
			err = decodeItems(b, dec, each)
		default:
			err = dec.Decode(&json.RawMessage{})
		}
		if err != nil {
			return meta, err
		}
		b.next()
	}
	return meta, delim(dec, '}')
}

func decodeItems[T any](b *bounded, dec *json.Decoder, each func(T) error) error {
	first, err := dec.Token()
	if err != nil || first == nil { // null: none
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("items are %v", first)
	}
	for dec.More() {
		b.next()
		var o T
		if err := dec.Decode(&o); err != nil {
			return err
		}
		if err := each(o); err != nil {
			return err
		}
	}
	return delim(dec, ']')
}

func delim(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v where %v should be", got, want)
	}
	return err
}

// change is one event of a watch.
type change struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch follows from a version and returns the last one it has seen. nil: the server has ended it.
func (f *feed[T]) watch(ctx context.Context, version string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout+time.Minute)
	defer cancel()
	q := url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "fieldSelector": {f.selector}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(int(watchTimeout.Seconds()))},
	}
	body, err := f.client.open(ctx, request{method: http.MethodGet, path: f.path, query: q})
	if err != nil {
		return version, fmt.Errorf("watch %s: %w", f.path, err)
	}
	defer body.Close()
	b := &bounded{r: body, value: maxAnswer, endless: true}
	dec := json.NewDecoder(b)
	began := time.Now()
	for n := 1; ; n++ {
		if n%burstOfEvents == 0 { // a server that never ends to tell shall not have the processor
			pause(ctx, time.Until(began.Add(time.Second)), nil)
			began = time.Now()
		}
		var c change
		b.next()
		err := dec.Decode(&c)
		if errors.Is(err, io.EOF) {
			return version, nil
		}
		if err == nil {
			err = f.take(c, &version)
		}
		if err != nil {
			return version, fmt.Errorf("watch %s: %w", f.path, err)
		}
	}
}

func (f *feed[T]) take(c change, version *string) error {
	var meta struct {
		Metadata listMeta `json:"metadata"`
		Code     int      `json:"code"`
		Message  string   `json:"message"`
	}
	if err := json.Unmarshal(c.Object, &meta); err != nil {
		return err
	}
	switch c.Type {
	case "ADDED", "MODIFIED", "DELETED":
		var o T
		if err := json.Unmarshal(c.Object, &o); err != nil {
			return err
		}
		f.sink.update(o, c.Type == "DELETED")
	case "BOOKMARK":
	case "ERROR":
		if meta.Code == http.StatusGone {
			return errGone
		}
		return fmt.Errorf("%d %s", meta.Code, clip(meta.Message))
	default:
		return fmt.Errorf("event of type %q", clip(c.Type))
	}
	if meta.Metadata.ResourceVersion != "" {
		*version = meta.Metadata.ResourceVersion
	}
	return nil
}

// newer says that a resource version is not before another one. Those that are no numbers cannot be compared.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x >= y
}
