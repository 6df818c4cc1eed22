<?php
// A worker in PHP: JSON lines, no extensions but json. The protocol is in docs/worker-protocol.md.
declare(strict_types=1);

// All output of `echo` and PHP's own messages go to standard error: standard output is for the protocol.
ini_set('display_errors', 'stderr');
ob_start(function (string $printed): string {
    fwrite(STDERR, $printed);
    return '';
}, 1);
if (function_exists('pcntl_signal')) {
    pcntl_signal(SIGINT, SIG_IGN); // Ctrl-C is the pool's business
}
$fd = getenv('LONGSHORE_WORKER_FD');
$in = $fd === false ? STDIN : fopen("php://fd/$fd", 'r');
$out = $fd === false ? STDOUT : fopen("php://fd/$fd", 'w');

const JSON = JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION | JSON_THROW_ON_ERROR;

function say_to_pool(array $message): void
{
    global $out;
    $line = json_encode($message, JSON) . "\n";
    for ($at = 0; $at < strlen($line); $at += $written) {
        $written = fwrite($out, substr($line, $at));
        if ($written === false) {
            exit(0); // the pool is gone
        }
    }
}

/** What an operation throws to say more than "it failed". */
final class OperationError extends RuntimeException
{
    public function __construct(public string $kind, string $message, ?Throwable $cause = null)
    {
        parent::__construct($message, 0, $cause);
    }
}

// The operations. An operation gets its arguments (objects as stdClass, so that {} does not become [])
// and a function that reports progress.
$operations = [
    'noop' => fn () => null,
    'echo' => fn ($given) => $given,
    'double' => function ($number) {
        if (!is_int($number) && !is_float($number)) {
            throw new OperationError('bad_arguments', 'a number is needed');
        }
        return 2 * $number;
    },
    'slow' => function ($given, callable $progress) {
        [$steps, $ms] = [$given->steps ?? 10, $given->ms ?? 100];
        for ($step = 1; $step <= $steps; $step++) {
            usleep($ms * 1000);
            $progress(['step' => $step, 'of' => $steps]);
        }
        return 'done';
    },
    'fail' => fn ($words) => throw new OperationError('handler', $words, new Exception('it was asked to')),
    'print' => function (string $words) {
        echo $words;
        return strlen($words);
    },
];

function perform(stdClass $call, array $operations): array
{
    $operation = $operations[$call->operation]
        ?? throw new OperationError('unknown_operation', "no operation {$call->operation}");
    $bytes = isset($call->arguments_base64);
    $arguments = $bytes ? base64_decode($call->arguments_base64) : $call->arguments ?? null;
    $value = $operation($arguments, function ($value) use ($call): void {
        if ($call->progress ?? false) {
            say_to_pool(['type' => 'progress', 'id' => $call->id, 'value' => $value]);
        }
    });
    // PHP does not distinguish bytes from text: a call with bytes gets bytes back.
    return $bytes ? ['value_base64' => base64_encode((string) $value)] : ['value' => $value];
}

function answer(stdClass $call, array $operations): void
{
    try {
        say_to_pool(['type' => 'result', 'id' => $call->id, ...perform($call, $operations)]);
    } catch (Throwable $error) {
        for ($chain = [], $cause = $error->getPrevious(); $cause; $cause = $cause->getPrevious()) {
            $chain[] = $cause->getMessage();
        }
        $kind = $error instanceof OperationError ? $error->kind : 'handler';
        say_to_pool(['type' => 'error', 'id' => $call->id, 'kind' => $kind,
            'message' => $error->getMessage(), 'chain' => $chain]);
    }
}

$line = fgets($in);
$hello = $line === false ? exit(0) : json_decode($line);
if ($hello->version !== 1) {
    say_to_pool(['type' => 'failed', 'message' => "no version {$hello->version} here"]);
    exit(1);
}
// Connect to a database or load large data here: calls arrive only after `ready`.
say_to_pool(['type' => 'ready', 'version' => 1, 'pid' => getmypid(), 'encoding' => 'json', 'name' => 'php',
    'operations' => array_map(fn ($name) => ['name' => $name], array_keys($operations))]);
while (($line = fgets($in)) !== false && str_ends_with($line, "\n")) { // half a line: the pool died
    $message = json_decode($line);
    match ($message->type) {
        'call' => answer($message, $operations),
        'ping' => say_to_pool(['type' => 'pong', 'id' => $message->id]),
        'stop' => exit(0), // clean up before
        default => null, // a cancel is read when its call is done: nothing is left to be cancelled
    };
}
