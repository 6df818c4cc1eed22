// What the workers of workerpool are to do.
require('workerpool').worker({ nothing() {} });
