package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestForEndsAfterItsTimeOrWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !For(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("it took %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if For(ctx, FarAway) || time.Since(began) != 2*time.Second {
			t.Errorf("with the context it took %v", time.Since(began))
		}
	})
}
