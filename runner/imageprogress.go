package runner

import (
	"context"
	"time"
)

// ImageProgress is what EnsureImage tells of an image while it works.
type ImageProgress struct {
	Image string
	// Pulling says that it is being fetched now. Otherwise it is here: it has been fetched, or was here already.
	Pulling bool
	// Present says that it was here already.
	Present bool
	// Took is how long fetching it took, Size its compressed size in bytes, 0 if that is not known.
	Took time.Duration
	Size int64
}

type imageProgressKey struct{}

// WithImageProgress returns a context for EnsureImage: tell, which must not block, hears what becomes of the images, as who
// hears it already does.
func WithImageProgress(ctx context.Context, tell func(ImageProgress)) context.Context {
	if others, ok := ctx.Value(imageProgressKey{}).(func(ImageProgress)); ok {
		also := tell
		tell = func(p ImageProgress) { others(p); also(p) }
	}
	return context.WithValue(ctx, imageProgressKey{}, tell)
}

// TellsImageProgress says that somebody hears what TellImageProgress tells.
func TellsImageProgress(ctx context.Context) bool { return ctx.Value(imageProgressKey{}) != nil }

// TellImageProgress is called by a Runtime while it ensures an image.
func TellImageProgress(ctx context.Context, p ImageProgress) {
	if tell, ok := ctx.Value(imageProgressKey{}).(func(ImageProgress)); ok {
		tell(p)
	}
}
